"use client";

import { LogOut } from "lucide-react";
import { useState } from "react";
import { describe } from "@/api/client";
import type { Unsaved } from "@/canvas/leaving";
import { isSignedIn, ownerOf, useSession } from "@/session/store";
import { Alert, Button, Dialog, IconButton } from "@/ui";
import { count } from "@/ui/words";
import { leave } from "./leave";

/** Signs out; asks first when this browser has what the server has not: nothing of it is left here. */
export function SignOut({ onProblem }: { onProblem: (problem: string | null) => void }) {
	const signedIn = useSession(isSignedIn);
	const owner = useSession(ownerOf);
	const name = useSession((s) => s.session?.name);
	const [lost, setLost] = useState<Unsaved | null>(null);
	const [busy, setBusy] = useState(false);
	const [problem, setProblem] = useState<string | null>(null);
	if (!signedIn || owner === null) return null;

	const attempt = async (work: () => Promise<void>, tell: (problem: string | null) => void) => {
		setBusy(true);
		tell(null);
		try {
			await work();
		} catch (error) {
			tell(`you are still signed in: ${describe(error)}`);
		} finally {
			setBusy(false);
		}
	};
	const ask = () =>
		attempt(async () => {
			const { unsavedBy } = await import("@/canvas/leaving");
			const found = await unsavedBy(owner);
			setProblem(null);
			if (found.canvases.length + found.unreadable === 0) await leave();
			else setLost(found);
		}, onProblem);
	const saveAll = (found: Unsaved) =>
		attempt(async () => {
			const { saveUnder } = await import("@/canvas/leaving");
			for (const [at, canvas] of found.canvases.entries()) {
				await saveUnder(canvas);
				// What is saved is not saved a second time where the next one can't be.
				setLost({ ...found, canvases: found.canvases.slice(at + 1) });
			}
			await leave();
		}, setProblem);

	return (
		<>
			<IconButton label={`Sign out ${name ?? ""}`.trim()} disabled={busy} onClick={() => void ask()}>
				<LogOut size={16} aria-hidden />
			</IconButton>
			<Dialog
				open={lost !== null}
				onClose={() => setLost(null)}
				title="Sign out?"
				close="Stay signed in"
				actions={
					<>
						{lost && lost.canvases.length > 0 && (
							<Button tone="accent" disabled={busy} onClick={() => void saveAll(lost)}>
								Save and sign out
							</Button>
						)}
						<Button tone="danger" disabled={busy} onClick={() => void attempt(leave, setProblem)}>
							{lost && lost.canvases.length + lost.unreadable > 0 ? "Discard them" : "Sign out"}
						</Button>
					</>
				}
			>
				{lost && (
					<div className="space-y-3">
						{lost.canvases.length > 0 && <p>The server does not have these canvases as they are in this browser:</p>}
						<ul aria-label="canvases that are not saved" className="list-disc pl-5">
							{lost.canvases.map(({ document }, at) => (
								// biome-ignore lint/suspicious/noArrayIndexKey: two may be alike in all that is shown
								<li key={at} className="break-words">
									<span className="font-medium">{document.name || "Untitled"}</span>{" "}
									<span className="text-soft text-xs">
										{document.namespace} · {count(document.nodes.length, "node")}
									</span>
								</li>
							))}
						</ul>
						{lost.unreadable > 0 && <p>What else it keeps can't be read back: {lost.unreadable} in all.</p>}
						<p>Whoever uses this browser next must not see them: when you sign out, nothing of them stays here.</p>
						<Alert>{problem}</Alert>
					</div>
				)}
			</Dialog>
		</>
	);
}
