/** Signing out: nothing of whoever leaves stays on the screen, in the page's memory or in the browser's storage. */

import { hearOtherTabs, tellOtherTabs } from "@/session/others";
import { ownerOf, useSession } from "@/session/store";

/** Signs out here and in every tab. Throws when the server does not take it: then nothing is forgotten. */
export async function leave(): Promise<void> {
	const owner = ownerOf(useSession.getState());
	// Fetched before: nothing must be missing between the answer and the forgetting.
	const { forgetSaved } = await import("@/canvas/saved");
	await useSession.getState().signOut(() => owner !== null && forgetSaved(owner));
	tellOtherTabs({ is: "out", owner });
	window.location.reload();
}

/** Does what other tabs have begun; the returned function ends it. */
export function followOtherTabs(): () => void {
	return hearOtherTabs((news) => void (news.is === "out" ? leftElsewhere(news.owner) : useSession.getState().look()));
}

/** Lets go of what is here of whoever has left. A tab that is somebody else's still asks the server whose it is now. */
async function leftElsewhere(whose: string | null): Promise<void> {
	const owner = ownerOf(useSession.getState());
	if (!owner || owner !== whose) return useSession.getState().look();
	const { forgetSaved } = await import("@/canvas/saved");
	forgetSaved(owner);
	window.location.reload();
}
