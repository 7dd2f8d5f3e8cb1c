/** How long words stay that nobody has asked for, by how long they take to read. Pure. */
export function noticeMs(words: string): number {
	return Math.min(30_000, Math.max(5_000, words.length * 60));
}
