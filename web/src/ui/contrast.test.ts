import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const css = readFileSync(new URL("../app/globals.css", import.meta.url), "utf8");
const SHADE = Number(/@utility tinted \{\s*background: color-mix\(in srgb, currentColor (\d+)%/.exec(css)?.[1]) / 100;

type Color = [number, number, number];

function colorsOf(selector: string): Record<string, Color> {
	const block = css.slice(css.indexOf(`${selector} {`));
	const found = block.slice(0, block.indexOf("}")).matchAll(/--([\w-]+): #(\w\w)(\w\w)(\w\w)/g);
	return Object.fromEntries(
		[...found].map(([, name, r, g, b]) => [name, [r, g, b].map((part) => Number.parseInt(part ?? "", 16)) as Color]),
	);
}

/** Relative luminance and contrast as WCAG 2.2 defines them. */
function luminance(color: Color): number {
	const [r = 0, g = 0, b = 0] = color.map((part) => {
		const share = part / 255;
		return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
	});
	return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one: Color, other: Color): number {
	const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
	return (light + 0.05) / (dark + 0.05);
}

test.each([":root", ':root[data-theme="dark"]'])(
	"given the colours of %s, then every state is read on its own shade",
	(selector) => {
		const colors = colorsOf(selector);
		const { surface } = colors as { surface: Color };
		for (const name of ["good", "bad", "warn", "ink", "accent"]) {
			const color = colors[name] as Color;
			const shade = color.map((part, at) => SHADE * part + (1 - SHADE) * (surface[at] ?? 0)) as Color;
			expect(contrast(color, shade), `${name} on its shade`).toBeGreaterThanOrEqual(4.5);
		}
	},
);
