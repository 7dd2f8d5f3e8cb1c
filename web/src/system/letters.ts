/** Which dead letters are asked for. Pure. */

import type { DeadLetterEntry } from "@/api/client";

/** Of each topic, so many of the newest at first, and when more are wanted, as many as the server gives. */
export const LETTERS = { first: 50, most: 500 } as const;

/** Whether a topic may have older ones than were asked for: an open one among them would be seen by nobody. */
export function anyCut(letters: Pick<DeadLetterEntry, "topic">[], limit: number): boolean {
	const counts = new Map<string, number>();
	for (const { topic } of letters) counts.set(topic, (counts.get(topic) ?? 0) + 1);
	return [...counts.values()].some((count) => count >= limit);
}

/** Where the record lies that could not be handled, as `dlq ls` and the log's own tools say it. */
export function placeOf({ topic, partition, offset }: Pick<DeadLetterEntry, "topic" | "partition" | "offset">): string {
	return `${topic}, partition ${partition}, offset ${offset}`;
}
