/** Follows a WebSocket from any point, through lost connections, to its last message. */

import { socketUrl } from "./client";

type Handlers<M> = {
	/** The path and query to connect to, made anew for each connection: it says where to go on. */
	path: () => string;
	onMessage: (message: M) => void;
	/** Whether a message is the last one. */
	isLast: (message: M) => boolean;
	/** Whether the connection stands. */
	onConnection: (connected: boolean) => void;
	/** The server knows no such thing, or will not show it. */
	onRefused: (reason: string) => void;
};

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8_000;
/** Closes after which another attempt is of no use: bad message, policy. */
const FINAL_CLOSES = new Set([1007, 1008]);

/** Starts following; the returned function lets go, and nothing is told behind it. */
export function followSocket<M>({ path, onMessage, isLast, onConnection, onRefused }: Handlers<M>): () => void {
	let socket: WebSocket | null = null;
	let timer: ReturnType<typeof setTimeout> | undefined;
	let pause = FIRST_PAUSE_MS;
	let done = false;
	let released = false;

	const connect = () => {
		socket = new WebSocket(socketUrl(path()));
		socket.onopen = () => {
			pause = FIRST_PAUSE_MS;
			onConnection(true);
		};
		socket.onmessage = (event) => {
			const message = parse<M>(event.data);
			if (message === null || done) return;
			onMessage(message);
			if (isLast(message)) {
				done = true;
				socket?.close();
			}
		};
		socket.onclose = (event) => {
			if (released) return;
			onConnection(false);
			if (done) return;
			if (FINAL_CLOSES.has(event.code)) {
				done = true;
				onRefused(event.reason || "the server refused the stream");
				return;
			}
			timer = setTimeout(connect, pause * (0.75 + Math.random() / 2));
			pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
		};
	};

	connect();
	return () => {
		done = true;
		released = true;
		clearTimeout(timer);
		socket?.close();
	};
}

function parse<M>(data: unknown): M | null {
	try {
		return typeof data === "string" ? (JSON.parse(data) as M) : null;
	} catch {
		return null;
	}
}
