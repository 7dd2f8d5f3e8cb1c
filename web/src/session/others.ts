/** What the tabs of a browser tell each other of signing in and out: they have one cookie together. */

/** `in`: somebody signed in, who may be another one than before. `out`: this one, who was signed in, is not any more. */
export type News = { is: "in" } | { is: "out"; owner: string | null };

const CHANNEL = "riverrun.session";
let channel: BroadcastChannel | null = null;

/** Hears what happens in other tabs, never what this one has told; the returned function ends it. */
export function hearOtherTabs(listen: (news: News) => void): () => void {
	// A browser without it leaves each tab to find out by itself, with its next request.
	if (typeof BroadcastChannel === "undefined") return () => {};
	const opened = new BroadcastChannel(CHANNEL);
	opened.onmessage = ({ data }: MessageEvent<News>) => listen(data);
	channel = opened;
	return () => {
		opened.close();
		if (channel === opened) channel = null;
	};
}

export function tellOtherTabs(news: News): void {
	channel?.postMessage(news);
}
