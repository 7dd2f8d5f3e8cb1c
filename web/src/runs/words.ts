/** What a tool was called with, or gave, in one line. Pure. */

const LONGEST = 160;

/** JSON as words: fields of an object by name, without the signs that only a parser needs. */
export function brief(value: unknown): string {
	if (value === undefined || value === null) return "";
	const text = inWords(value);
	return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

/** The same, however long. */
export function inWords(value: unknown): string {
	if (typeof value === "string") return value;
	if (typeof value !== "object" || value === null || Array.isArray(value)) return JSON.stringify(value);
	return Object.entries(value)
		.map(([name, one]) => `${name}: ${typeof one === "string" ? one : JSON.stringify(one)}`)
		.join(", ");
}

/** Whose run it is: the agent's name in its chain, with its type where the name does not say that already. */
export function whoRan({ agent, chain }: { agent?: string | null; chain?: { name: string } | null }): string {
	const type = agent ?? "supervisor";
	if (!chain) return type;
	return chain.name === type || chain.name.startsWith(`${type} `) ? chain.name : `${chain.name} · ${type}`;
}
