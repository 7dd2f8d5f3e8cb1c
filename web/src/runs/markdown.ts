/** Markdown that a model wrote, as plain data to draw. Pure: HTML in it is words, and so is every address that no browser should open. */

import MarkdownIt, { type MarkdownIt as Reader, type Token } from "markdown-it";
import { whereTo } from "./links";

type Side = "left" | "center" | "right";

/** What has only words or other pieces in it. */
type Holder =
	| "paragraph"
	/** What stands in an item of a list without space around it. */
	| "tight"
	| "heading"
	| "quote"
	| "bullets"
	| "item"
	| "table"
	| "head"
	| "body"
	| "row"
	| "strong"
	| "emphasis"
	| "deleted";

export type Piece =
	| { kind: Holder; children: Piece[] }
	| { kind: "numbers"; start: number; children: Piece[] }
	| { kind: "header" | "cell"; side: Side; children: Piece[] }
	| { kind: "link"; address: string; children: Piece[] }
	| { kind: "image"; address: string; text: string }
	| { kind: "citation"; n: number; text: string }
	| { kind: "text" | "code" | "block"; text: string }
	| { kind: "break" | "rule" };

type Open = Extract<Piece, { children: Piece[] }>;

/** A longer text is shown as it stands: it costs a slow machine too much each time that words are added. */
export const MOST_CHARACTERS = 65_536;
/** How many pieces stand in each other at most. A list counts twice: itself and its item. */
export const MOST_LEVELS = 40;
/** More would take a browser longer to draw than somebody waits. */
export const MOST_PIECES = 20_000;

const HOLDERS = new Map<string, Holder>([
	["paragraph_open", "paragraph"],
	["heading_open", "heading"],
	["blockquote_open", "quote"],
	["bullet_list_open", "bullets"],
	["list_item_open", "item"],
	["table_open", "table"],
	["thead_open", "head"],
	["tbody_open", "body"],
	["tr_open", "row"],
	["strong_open", "strong"],
	["em_open", "emphasis"],
	["s_open", "deleted"],
]);

const CITATION = /\[(\d{1,3})\]/y;

/** Numbers of sources behind the last cell of a row, where the server adds them to a row that names none. */
const BEHIND_ROW = /^([ \t]*\|.*\S)[ \t]*\|((?:[ \t]*\[\d{1,3}\])+)[ \t]*$/gm;

const reader = readerOfAnswers();

/** The pieces of a text; null for one that is too long, too deep or too much to draw, which is shown as it stands. */
export function piecesOf(text: string): Piece[] | null {
	if (text.length > MOST_CHARACTERS) return null;
	try {
		return new Tree().take(reader.parse(intoRows(text), {}));
	} catch {
		// Words that the parser fails at break no page.
		return null;
	}
}

/** Markdown leaves out what is behind the last cell, so that a source would be lost: it goes into the cell. */
function intoRows(text: string): string {
	return text.replace(BEHIND_ROW, "$1$2 |");
}

function readerOfAnswers(): Reader {
	// What is deeper than its nesting is left out by the parser; one level more than is drawn, so that nothing is lost unseen.
	const markdown = new MarkdownIt({ html: false, linkify: false, breaks: true, maxNesting: MOST_LEVELS + 1 });
	// A number in brackets is a source, never the name of an address. A line of dashes makes no heading of a paragraph that is being written.
	markdown.disable(["reference", "lheading", "html_block", "html_inline"]);
	// Every other address stays in the text, as the model wrote it.
	markdown.validateLink = (address) => whereTo(address) !== null;
	markdown.normalizeLink = (address) => address;
	markdown.inline.ruler.before("link", "citation", (state, silent) => {
		CITATION.lastIndex = state.pos;
		const found = CITATION.exec(state.src);
		if (!found || CITATION.lastIndex > state.posMax) return false;
		if (!silent) state.push("citation", "", 0).content = found[0];
		state.pos += found[0].length;
		return true;
	});
	return markdown;
}

/** Takes in what opens, closes and stands by itself, in the order of the text. */
class Tree {
	private readonly root: Piece[] = [];
	private readonly open: Open[] = [];
	private pieces = 0;

	/** All pieces; null once they are too deep or too many. */
	take(tokens: Token[]): Piece[] | null {
		return this.takeAll(tokens) ? this.root : null;
	}

	private takeAll(tokens: Token[]): boolean {
		for (const token of tokens) {
			if (token.type === "inline") {
				if (!this.takeAll(token.children ?? [])) return false;
			} else if (token.nesting < 0) {
				this.open.pop();
			} else {
				const piece = pieceOf(token);
				this.add(piece);
				if ("children" in piece) this.open.push(piece);
				if (this.open.length > MOST_LEVELS || this.pieces > MOST_PIECES) return false;
			}
		}
		return true;
	}

	private add(piece: Piece) {
		// The parser leaves a word of no letters where a mark was.
		if (piece.kind === "text" && piece.text === "") return;
		(this.open.at(-1)?.children ?? this.root).push(piece);
		this.pieces += 1;
	}
}

function pieceOf(token: Token): Piece {
	switch (token.type) {
		case "softbreak":
		case "hardbreak":
			return { kind: "break" };
		case "hr":
			return { kind: "rule" };
		case "code_inline":
			return { kind: "code", text: token.content };
		case "fence":
		case "code_block":
			return { kind: "block", text: token.content.replace(/\n$/, "") };
		case "citation":
			return { kind: "citation", n: Number(token.content.slice(1, -1)), text: token.content };
		case "image":
			return { kind: "image", address: attributeOf(token, "src"), text: token.content };
		case "link_open":
			return { kind: "link", address: attributeOf(token, "href"), children: [] };
		case "ordered_list_open":
			return { kind: "numbers", start: Number(token.attrGet("start") ?? 1), children: [] };
		case "th_open":
			return { kind: "header", side: sideOf(token), children: [] };
		case "td_open":
			return { kind: "cell", side: sideOf(token), children: [] };
	}
	const holder = HOLDERS.get(token.type);
	if (holder) return { kind: holder === "paragraph" && token.hidden ? "tight" : holder, children: [] };
	// Whatever opens holds what follows until it closes; all else is words.
	return token.nesting > 0 ? { kind: "tight", children: [] } : { kind: "text", text: token.content };
}

function sideOf(token: Token): Side {
	const style = attributeOf(token, "style");
	if (style.endsWith("right")) return "right";
	return style.endsWith("center") ? "center" : "left";
}

function attributeOf(token: Token, name: string): string {
	return String(token.attrGet(name) ?? "");
}

/** The words of pieces, without what marks them. */
export function wordsOf(pieces: Piece[]): string {
	return pieces
		.map((piece) => {
			if ("children" in piece) return wordsOf(piece.children);
			return "text" in piece ? piece.text : "\n";
		})
		.join("");
}
