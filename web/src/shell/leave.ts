/** Signing out: nothing of whoever leaves stays on the screen, in the page's memory or in the browser's storage. */

import { hearOtherTabs, tellOtherTabs } from "@/session/others";
import { ownerOf, useSession } from "@/session/store";

/** Signs out here and in every tab. Throws when the server does not take it: then nothing is forgotten. */
export async function leave(): Promise<void> {
	const owner = ownerOf(useSession.getState());
	// Fetched before: nothing must be missing between the answer and the forgetting.
	const { forgetSaved } = await import("@/canvas/saved");
	await useSession.getState().signOut(() => owner !== null && forgetSaved(owner));
	tellOtherTabs("out");
	window.location.reload();
}

/** Does what other tabs have begun; the returned function ends it. */
export function followOtherTabs(): () => void {
	return hearOtherTabs((news) => void (news === "out" ? leftElsewhere() : useSession.getState().look()));
}

async function leftElsewhere(): Promise<void> {
	const owner = ownerOf(useSession.getState());
	if (!owner) return;
	const { forgetSaved } = await import("@/canvas/saved");
	forgetSaved(owner);
	window.location.reload();
}
