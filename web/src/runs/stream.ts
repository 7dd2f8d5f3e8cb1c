/** Follows a run over WebSocket from any point, through lost connections, to its end. */

import { socketUrl } from "@/api/client";
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

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8_000;
/** Closes after which another attempt is of no use: bad message, policy. */
const FINAL_CLOSES = new Set([1007, 1008]);

/** Starts following; the returned function lets go. */
export function followRun(runId: string, handlers: Handlers): () => void {
	let socket: WebSocket | null = null;
	let timer: ReturnType<typeof setTimeout> | undefined;
	let pause = FIRST_PAUSE_MS;
	let done = false;

	const connect = () => {
		const query = new URLSearchParams({ after: String(handlers.after()), tokens: "true" });
		socket = new WebSocket(socketUrl(`/ws/runs/${encodeURIComponent(runId)}?${query}`));
		socket.onopen = () => {
			pause = FIRST_PAUSE_MS;
			handlers.onConnection(true);
		};
		socket.onmessage = (event) => {
			const message = parse(event.data);
			if (!message) return;
			handlers.onMessage(message);
			if (message.type === "final") {
				done = true;
				socket?.close();
			}
		};
		socket.onclose = (event) => {
			handlers.onConnection(false);
			if (done) return;
			if (FINAL_CLOSES.has(event.code)) {
				done = true;
				handlers.onRefused(event.reason || "the server refused the stream");
				return;
			}
			timer = setTimeout(connect, pause * (0.75 + Math.random() / 2));
			pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
		};
	};

	connect();
	return () => {
		done = true;
		clearTimeout(timer);
		socket?.close();
	};
}

function parse(data: unknown): RunMessage | null {
	try {
		return typeof data === "string" ? (JSON.parse(data) as RunMessage) : null;
	} catch {
		return null;
	}
}
