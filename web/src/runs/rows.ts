"use client";

/** Long lists: of rows as high as each other, but for one that is open, only those are drawn that are looked at. */

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
	/** The row that is open, counted from 0, and so as high as what is in it; its element has `data-open`. */
	open?: number;
};

/** A row that is higher than the others by so many pixels. */
type Tall = { at: number; extra: number };
/** All rows are as high as each other. */
const NONE: Tall = { at: -1, extra: 0 };

export type Rows = {
	box: RefObject<HTMLDivElement | null>;
	onScroll: () => void;
	/** The rows from `first` to before `last` are drawn. */
	first: number;
	last: number;
	/** Stands for the others. */
	style: CSSProperties;
};

export function useRows({ rows, height, growing, more, open = -1 }: Given): Rows {
	const [top, setTop] = useState(0);
	const [extra, setExtra] = useState(0);
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
	useLayoutEffect(() => {
		const row = open < 0 ? null : box.current?.querySelector<HTMLElement>("[data-open]");
		// One that is open and not drawn is as high as it was last.
		if (row) setExtra(Math.max(0, row.offsetHeight - ROW_PX));
		else if (open < 0) setExtra(0);
	});
	const { first, last, above, below } = drawnRows(rows, height, top, { at: open, extra });
	// Where rows lie is reckoned here; a browser that holds one in its place, too, would move the list once more.
	return { box, onScroll, first, last, style: { paddingTop: above, paddingBottom: below, overflowAnchor: "none" } };
}

type Drawn = {
	first: number;
	last: number;
	/** Pixels that stand for the rows before the first one and behind the last one. */
	above: number;
	below: number;
};

/** Which rows are drawn of a list that is scrolled so far down. */
export function drawnRows(rows: number, height: number | undefined, top: number, tall = NONE): Drawn {
	if (rows <= DRAW_ALL || height === undefined) return { first: 0, last: rows, above: 0, below: 0 };
	const seen = Math.ceil(height / ROW_PX) + 2 * MARGIN_ROWS;
	// A list that became shorter is scrolled farther than it goes, until the browser says so.
	const first = Math.max(0, Math.min(rowAt(top, tall) - MARGIN_ROWS, rows - seen));
	const last = Math.min(rows, first + seen);
	const isIn = (from: number, to: number) => tall.at >= from && tall.at < to;
	const pixels = (from: number, to: number) => (to - from) * ROW_PX + (isIn(from, to) ? tall.extra : 0);
	return { first, last, above: pixels(0, first), below: pixels(last, rows) };
}

/** The row at so many pixels from the beginning of the list. */
function rowAt(pixel: number, { at, extra }: Tall): number {
	const beyond = at < 0 ? 0 : pixel - (at + 1) * ROW_PX;
	if (beyond <= 0) return Math.floor(pixel / ROW_PX);
	return beyond < extra ? at : Math.floor((pixel - extra) / ROW_PX);
}
