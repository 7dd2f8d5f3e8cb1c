"use client";

/** Who the server takes this page for. The token itself is kept by nobody here: the server puts it into a cookie. */

import { create } from "zustand";
import { API_BASE, ApiError, call, describe, Offline, whenUnauthorized } from "@/api/client";
import type { SessionView } from "@/api/shapes";
import { tellOtherTabs } from "./others";

const PATH = "/auth/session";
/** The namespace of a token that may use every one. */
const ANY = "*";

type SessionState = {
	session: SessionView | null;
	/** The server wants a token, and has none of ours. */
	needed: boolean;
	/** Counts sign-ins: what was refused before is asked for again. */
	round: number;
	/** Why the server does not say whom it takes this page for; that nobody answers is said elsewhere. */
	problem: string | null;
	look: () => Promise<void>;
	signIn: (token: string) => Promise<void>;
	/** `forget` is called as soon as nobody is signed in any more, before anything is drawn of that. */
	signOut: (forget?: () => void) => Promise<void>;
};

export const useSession = create<SessionState>((set, get) => ({
	// On pages that another server carries nobody signs in: they are there also while the API is away.
	session: API_BASE ? { auth: "off" } : null,
	needed: false,
	round: 0,
	problem: null,

	async look() {
		try {
			const session = await call<SessionView>(PATH);
			if (isHandedOver(get(), session)) return beginAnew();
			const needed = isAnonymous(session);
			// Whose token has run out is asked for one, and finds the page as it was.
			set({ session: needed ? (get().session ?? session) : session, needed, problem: null });
		} catch (error) {
			// A server that knows no sessions asks for none. One that is away is asked again by whoever needs something of it.
			if (error instanceof ApiError && error.status === 404)
				set({ session: { auth: "off" }, needed: false, problem: null });
			else if (!(error instanceof Offline)) set({ problem: describe(error) });
		}
	},

	async signIn(token) {
		const session = await call<SessionView>(PATH, { method: "POST", body: { token } });
		tellOtherTabs({ is: "in" });
		if (isHandedOver(get(), session)) return beginAnew();
		set((state) => ({ session, needed: false, round: state.round + 1, problem: null }));
	},

	async signOut(forget = () => {}) {
		await call(PATH, { method: "DELETE" });
		forget();
		set({ session: { auth: "required" }, needed: true });
	},
}));

whenUnauthorized(() => useSession.setState({ needed: true }));

function isAnonymous({ auth, namespace, scopes }: SessionView): boolean {
	return auth === "required" && !namespace && (scopes ?? []).length === 0;
}

/** Whether somebody else uses the page now than the one whose work is on it. */
function isHandedOver(before: Pick<SessionState, "session">, session: SessionView): boolean {
	const [was, is] = [ownerOf(before), ownerOf({ session })];
	return was !== null && is !== null && was !== is;
}

/** Nothing of what is in this page's memory is for whoever comes now: it is loaded anew, as the server shows it to them. */
function beginAnew(): void {
	window.location.reload();
}

/** Whether somebody is signed in who can sign out. */
export function isSignedIn({ session, needed }: Pick<SessionState, "session" | "needed">): boolean {
	return session?.auth === "required" && !needed && !isAnonymous(session);
}

/**
 * Whose work is on the page: the name of their token, which no two tokens share; empty where the server asks for none. Null while that
 * is not known, and when nobody is signed in. Whose token has run out stays the owner until somebody else signs in.
 */
export function ownerOf({ session }: Pick<SessionState, "session">): string | null {
	if (session === null) return null;
	if (session.auth !== "required") return "";
	return isAnonymous(session) ? null : session.name || "a token without a name";
}

/** The namespace that the page begins with. */
export function homeNamespace(session: SessionView | null): string {
	const named = session?.namespace;
	return named && named !== ANY ? named : "default";
}
