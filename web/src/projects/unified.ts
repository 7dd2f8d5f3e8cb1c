/** Unified diffs as rows. Pure. */

export type Row =
	| { kind: "same" | "removed" | "added"; left: number | null; right: number | null; text: string }
	| { kind: "place"; text: string }
	| { kind: "note"; text: string };

export type Pair = { left: Cell | null; right: Cell | null } | { place: string };
type Cell = { line: number; text: string; changed: boolean };

/** The rows of a diff of one file; what stands before its first hunk is left out. */
export function rows(diff: string): Row[] {
	const found: Row[] = [];
	let [left, right] = [0, 0];
	/** Lines that the hunk still has: a line of the file may begin with `---` or `@@` as well. */
	let [leftOpen, rightOpen] = [0, 0];
	const lines = diff.split("\n");
	if (lines.at(-1) === "") lines.pop();
	for (const line of lines) {
		const open = leftOpen > 0 || rightOpen > 0;
		const place = open ? null : /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
		if (place) {
			[left, right] = [Number(place[1]), Number(place[3])];
			[leftOpen, rightOpen] = [Number(place[2] ?? 1), Number(place[4] ?? 1)];
			found.push({ kind: "place", text: line });
		} else if (line.startsWith("\\") && found.length > 0) {
			found.push({ kind: "note", text: line.slice(1).trim() });
		} else if (open) {
			const text = line.slice(1);
			if (line.startsWith("-")) {
				found.push({ kind: "removed", left: left++, right: null, text });
				leftOpen -= 1;
			} else if (line.startsWith("+")) {
				found.push({ kind: "added", left: null, right: right++, text });
				rightOpen -= 1;
			} else {
				found.push({ kind: "same", left: left++, right: right++, text });
				leftOpen -= 1;
				rightOpen -= 1;
			}
		}
	}
	return found;
}

/** The same beside each other: removed lines stand against the added ones that follow them. */
export function pairs(all: Row[]): Pair[] {
	const found: Pair[] = [];
	let removed: Cell[] = [];
	let added: Cell[] = [];
	const flush = () => {
		for (let at = 0; at < Math.max(removed.length, added.length); at++) {
			found.push({ left: removed[at] ?? null, right: added[at] ?? null });
		}
		[removed, added] = [[], []];
	};
	for (const row of all) {
		switch (row.kind) {
			case "removed":
				// What follows added lines is another change.
				if (added.length > 0) flush();
				removed.push({ line: row.left ?? 0, text: row.text, changed: true });
				break;
			case "added":
				added.push({ line: row.right ?? 0, text: row.text, changed: true });
				break;
			case "same":
				flush();
				found.push({
					left: { line: row.left ?? 0, text: row.text, changed: false },
					right: { line: row.right ?? 0, text: row.text, changed: false },
				});
				break;
			case "place":
				flush();
				found.push({ place: row.text });
				break;
			case "note":
				break;
		}
	}
	flush();
	return found;
}

export function counts(all: Row[]): { added: number; removed: number } {
	return {
		added: all.filter((row) => row.kind === "added").length,
		removed: all.filter((row) => row.kind === "removed").length,
	};
}
