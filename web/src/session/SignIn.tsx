"use client";

import { Dialog as RadixDialog } from "radix-ui";
import { useState } from "react";
import { ApiError, describe } from "@/api/client";
import { Alert, Button, Field, Input } from "@/ui";
import { useSession } from "./store";

/** Asks for a token in front of the page, for as long as the server wants one. */
export function SignIn() {
	const needed = useSession((s) => s.needed);
	const { signIn } = useSession.getState();
	const [token, setToken] = useState("");
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);

	const enter = async () => {
		setBusy(true);
		setProblem(null);
		try {
			await signIn(token.trim());
			setToken("");
		} catch (error) {
			const unknown = error instanceof ApiError && error.status === 401;
			setProblem(unknown ? "The server does not know this token." : describe(error));
		} finally {
			setBusy(false);
		}
	};

	return (
		<RadixDialog.Root open={needed}>
			<RadixDialog.Portal>
				{/* What is behind it is of whoever was signed in, and nobody else's to see. */}
				<RadixDialog.Overlay className="fixed inset-0 z-60 bg-ground" />
				<RadixDialog.Content
					aria-describedby="sign-in-why"
					className="nokey fixed top-1/2 left-1/2 z-60 w-[92vw] max-w-md -translate-x-1/2 -translate-y-1/2 rounded-lg border border-line bg-surface p-4 shadow-xl"
				>
					<RadixDialog.Title className="mb-1 font-semibold text-base">Sign in to riverrun</RadixDialog.Title>
					<p id="sign-in-why" className="mb-3 text-soft">
						This server answers only those who show a token.
					</p>
					<form
						className="space-y-3"
						onSubmit={(event) => {
							event.preventDefault();
							void enter();
						}}
					>
						<Field label="token">
							<Input
								type="password"
								autoComplete="current-password"
								value={token}
								onChange={(event) => setToken(event.target.value)}
							/>
						</Field>
						<Button type="submit" tone="accent" disabled={busy || !token.trim()}>
							{busy ? "Asking…" : "Sign in"}
						</Button>
						<Alert>{problem}</Alert>
					</form>
				</RadixDialog.Content>
			</RadixDialog.Portal>
		</RadixDialog.Root>
	);
}
