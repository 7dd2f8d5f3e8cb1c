/** Follows a run from any point to its end. */

import { followSocket } from "@/api/socket";
import type { RunMessage } from "./fold";

type Handlers = {
	onMessage: (message: RunMessage) => void;
	/** Whether the connection stands; for the words under a node. */
	onConnection: (connected: boolean) => void;
	/** The server knows no such run, or will not show it. */
	onRefused: (reason: string) => void;
	/** Where a new connection goes on. */
	after: () => number;
};

/** Starts following; the returned function lets go. */
export function followRun(runId: string, { after, ...handlers }: Handlers): () => void {
	return followSocket<RunMessage>({
		...handlers,
		path: () =>
			`/ws/runs/${encodeURIComponent(runId)}?${new URLSearchParams({ after: String(after()), tokens: "true" })}`,
		isLast: (message) => message.type === "final",
	});
}
