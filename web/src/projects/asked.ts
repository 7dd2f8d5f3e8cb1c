/** What is typed into the form of a rewrite, and the request that it makes. An empty field is the server's default. Pure. */

import type { ImproveBody } from "@/api/shapes";

export type Asked = {
	file: string;
	instruction: string;
	/** Names with white space or commas between them. */
	mayRemove: string;
	candidates: string;
	/** A line as for a shell that only takes quotation marks away. */
	tests: string;
};

export type Wishes = Omit<Asked, "file">;

export const NO_WISHES: Wishes = { instruction: "", mayRemove: "", candidates: "1", tests: "" };

/** How many rewrites may be asked for. */
export const CANDIDATES = ["1", "2", "3", "4"];

type Made = { body: ImproveBody; problem: null } | { body: null; problem: string };

export function bodyOf({ file, instruction, mayRemove, candidates, tests }: Asked): Made {
	const command = words(tests);
	if (command === null) {
		return { body: null, problem: `the tests ${JSON.stringify(tests)} have a quotation mark without its other one` };
	}
	const names = [...new Set(mayRemove.split(/[\s,]+/).filter(Boolean))];
	const wanted = instruction.trim();
	return {
		problem: null,
		body: {
			file: file.trim(),
			...(wanted && { instruction: wanted }),
			...(names.length > 0 && { may_remove: names }),
			...(candidates !== NO_WISHES.candidates && { candidates: Number(candidates) }),
			...(command.length > 0 && { tests: command }),
		},
	};
}

/** A program and its arguments: what stands between quotation marks is one, as it is. `null` when one of the marks is left open. */
export function words(line: string): string[] | null {
	const found: string[] = [];
	let rest = line.trimStart();
	while (rest) {
		const word = /^(?:[^\s"']|"[^"]*"|'[^']*')+/.exec(rest)?.[0];
		const behind = word === undefined ? rest : rest.slice(word.length);
		if (word === undefined || /^["']/.test(behind)) return null;
		found.push(word.replace(/"([^"]*)"|'([^']*)'/g, (_, double, single) => double ?? single));
		rest = behind.trimStart();
	}
	return found;
}
