"use client";

import { useEffect, useRef, useState } from "react";
import type uPlot from "uplot";
import { summary } from "./summary";

export type Line = {
	label: string;
	/** One for each x; null where there is none. */
	values: (number | null)[];
	color: "accent" | "good" | "warn" | "soft";
	/** Single points instead of a line. */
	dots?: boolean;
};

type Props = { title: string; x: number[]; xLabel: string; lines: Line[]; height?: number };

/** Curves over a common x. The library comes when the first one is drawn. */
export function Curve({ title, x, xLabel, lines, height = 220 }: Props) {
	const box = useRef<HTMLDivElement>(null);
	const plot = useRef<uPlot | null>(null);
	const latest = useRef<uPlot.AlignedData>([x]);
	latest.current = [x, ...lines.map((line) => line.values)];
	const theme = useThemeName();
	const shape = JSON.stringify([theme, xLabel, height, lines.map(({ label, color, dots }) => [label, color, dots])]);

	// biome-ignore lint/correctness/useExhaustiveDependencies: `shape` says when the curves are other ones
	useEffect(() => {
		const parent = box.current;
		if (!parent) return;
		let gone = false;
		let observer: ResizeObserver | null = null;
		void import("uplot").then(({ default: Plot }) => {
			if (gone) return;
			const made = new Plot(options(parent, height, xLabel, lines), latest.current, parent);
			plot.current = made;
			observer = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height }));
			observer.observe(parent);
		});
		return () => {
			gone = true;
			observer?.disconnect();
			plot.current?.destroy();
			plot.current = null;
		};
	}, [shape]);

	// biome-ignore lint/correctness/useExhaustiveDependencies: the data is what the curves are drawn anew for
	useEffect(() => {
		plot.current?.setData(latest.current);
	}, [x, lines]);

	return (
		<figure>
			<figcaption className="font-medium text-xs">{title}</figcaption>
			<div ref={box} role="img" aria-label={`${title}: ${summary(x, xLabel, lines)}`} style={{ minHeight: height }} />
		</figure>
	);
}

function options(parent: HTMLElement, height: number, xLabel: string, lines: Line[]): uPlot.Options {
	const colors = getComputedStyle(document.documentElement);
	const color = (name: string) => colors.getPropertyValue(`--${name}`).trim();
	const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") } };
	return {
		width: Math.max(parent.clientWidth, 100),
		height,
		scales: { x: { time: false } },
		// Rates are far below the digits that an axis shows by itself.
		axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => String(Number(tick.toPrecision(4)))) }],
		series: [
			{ label: xLabel, value: (_: unknown, value: number | null) => (value == null ? "–" : String(value)) },
			...lines.map((line) => ({
				label: line.label,
				stroke: color(line.color),
				width: line.dots ? 0 : 1.5,
				spanGaps: true,
				points: { show: line.dots === true, size: 6, fill: color(line.color) },
				value: (_: unknown, value: number | null) => (value == null ? "–" : String(Number(value.toPrecision(4)))),
			})),
		],
	};
}

/** Changes when the page goes from light to dark: what is drawn on a canvas has to be drawn anew. */
function useThemeName(): string {
	const [theme, setTheme] = useState("");
	useEffect(() => {
		const root = document.documentElement;
		const read = () => setTheme(root.dataset.theme ?? "");
		read();
		const observer = new MutationObserver(read);
		observer.observe(root, { attributes: true, attributeFilter: ["data-theme"] });
		return () => observer.disconnect();
	}, []);
	return theme;
}
