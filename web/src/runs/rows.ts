"use client";

/** Long lists: of rows as high as each other only those are drawn that are looked at. */

import { type CSSProperties, type RefObject, useLayoutEffect, useRef, useState } from "react";

export const ROW_PX = 30;
/** Rows drawn beyond what is seen, above and below. */
const MARGIN_ROWS = 10;
/** More rows than this are drawn only where they are looked at. */
const DRAW_ALL = 100;

type Given = {
	rows: number;
	/** Of the list, in pixels; left out, all rows are drawn. */
	height?: number;
	/** More are coming: whoever looks at the last one sees the next, too. */
	growing?: boolean;
	/** Changes with what makes the list higher beside its rows. */
	more?: number;
};

export type Rows = {
	box: RefObject<HTMLDivElement | null>;
	onScroll: () => void;
	/** The rows from `first` to before `last` are drawn. */
	first: number;
	last: number;
	/** Stands for the others. */
	style: CSSProperties;
};

export function useRows({ rows, height, growing, more }: Given): Rows {
	const [top, setTop] = useState(0);
	const box = useRef<HTMLDivElement>(null);
	/** Whether the end of the list is in sight. */
	const atEnd = useRef(true);
	// biome-ignore lint/correctness/useExhaustiveDependencies: each row that comes moves the end
	useLayoutEffect(() => {
		if (growing && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
	}, [growing, rows, more]);
	const onScroll = () => {
		if (!box.current) return;
		const { scrollTop, scrollHeight, clientHeight } = box.current;
		atEnd.current = scrollHeight - scrollTop - clientHeight < ROW_PX;
		setTop(scrollTop);
	};
	const { first, last } = drawnRows(rows, height, top);
	return { box, onScroll, first, last, style: { paddingTop: first * ROW_PX, paddingBottom: (rows - last) * ROW_PX } };
}

/** Which rows are drawn of a list that is scrolled so far down. */
export function drawnRows(rows: number, height: number | undefined, top: number): { first: number; last: number } {
	if (rows <= DRAW_ALL || height === undefined) return { first: 0, last: rows };
	const seen = Math.ceil(height / ROW_PX) + 2 * MARGIN_ROWS;
	// A list that became shorter is scrolled farther than it goes, until the browser says so.
	const first = Math.max(0, Math.min(Math.floor(top / ROW_PX) - MARGIN_ROWS, rows - seen));
	return { first, last: Math.min(rows, first + seen) };
}
