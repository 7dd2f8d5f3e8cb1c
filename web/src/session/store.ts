"use client";

/** Who the server takes this page for. The token itself is kept by nobody here: the server puts it into a cookie. */

import { create } from "zustand";
import { ApiError, call, whenUnauthorized } from "@/api/client";
import type { SessionView } from "@/api/shapes";

const PATH = "/auth/session";
/** The namespace of a token that may use every one. */
const ANY = "*";

type SessionState = {
	session: SessionView | null;
	/** The server wants a token, and has none of ours. */
	needed: boolean;
	/** Counts sign-ins: what was refused before is asked for again. */
	round: number;
	look: () => Promise<void>;
	signIn: (token: string) => Promise<void>;
	signOut: () => Promise<void>;
};

export const useSession = create<SessionState>((set) => ({
	session: null,
	needed: false,
	round: 0,

	async look() {
		try {
			const session = await call<SessionView>(PATH);
			set({ session, needed: isAnonymous(session) });
		} catch (error) {
			// A server that knows no sessions asks for none. One that is away is asked again by whoever needs something of it.
			if (error instanceof ApiError && error.status === 404) set({ session: { auth: "off" }, needed: false });
		}
	},

	async signIn(token) {
		const session = await call<SessionView>(PATH, { method: "POST", body: { token } });
		set((state) => ({ session, needed: false, round: state.round + 1 }));
	},

	async signOut() {
		await call(PATH, { method: "DELETE" });
		set({ session: { auth: "required" }, needed: true });
	},
}));

whenUnauthorized(() => useSession.setState({ needed: true }));

function isAnonymous({ auth, namespace, scopes }: SessionView): boolean {
	return auth === "required" && !namespace && (scopes ?? []).length === 0;
}

/** Whether somebody is signed in who can sign out. */
export function isSignedIn({ session, needed }: Pick<SessionState, "session" | "needed">): boolean {
	return session?.auth === "required" && !needed && !isAnonymous(session);
}

/** The namespace that the page begins with. */
export function homeNamespace(session: SessionView | null): string {
	const named = session?.namespace;
	return named && named !== ANY ? named : "default";
}
