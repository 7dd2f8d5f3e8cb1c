"use client";

import clsx from "clsx";
import { createElement, Fragment, type ReactNode, useDeferredValue, useMemo } from "react";
import { Address, ModelText } from "./ModelText";
import { type Piece, piecesOf, wordsOf } from "./markdown";
import { CitationButton, PlainText, type WrittenProps } from "./PlainText";

type Cite = (n: number) => ReactNode;

const SIDES = { left: "text-left", center: "text-center", right: "text-right" };

/** What a model wrote, with the form that its Markdown gives it. Every element is made here, none by the text. */
export default function FormattedText(props: WrittenProps) {
	const { citations, onOpen, className } = props;
	// While words come faster than they can be drawn, those in between are left out.
	const text = useDeferredValue(props.text);
	const drawn = useMemo(() => {
		const cite: Cite = (n) => {
			const citation = citations?.find((one) => one.n === n);
			return citation ? <CitationButton citation={citation} onOpen={onOpen} /> : null;
		};
		const pieces = piecesOf(text);
		return pieces && drawAll(pieces, cite);
	}, [text, citations, onOpen]);
	if (drawn === null) return <PlainText {...props} />;
	return <div className={clsx("wrap-anywhere space-y-2", className)}>{drawn}</div>;
}

/** By their place: what is written already stays as it is while more comes. */
function drawAll(pieces: Piece[], cite: Cite): ReactNode {
	return createElement(Fragment, null, ...pieces.map((piece) => draw(piece, cite)));
}

function draw(piece: Piece, cite: Cite): ReactNode {
	switch (piece.kind) {
		case "text":
			return <ModelText text={piece.text} />;
		case "break":
			return <br />;
		case "rule":
			return <hr className="border-line" />;
		case "code":
			return <code className="rounded bg-raised px-1 font-mono text-[0.9em]">{piece.text}</code>;
		case "block":
			return (
				<pre className="wrap-anywhere whitespace-pre-wrap rounded bg-raised p-2 font-mono text-xs">
					<code>{piece.text}</code>
				</pre>
			);
		case "citation":
			return cite(piece.n) ?? piece.text;
		case "image":
			return (
				<span>
					{piece.text && `${piece.text} `}(image: <Address address={piece.address} />)
				</span>
			);
		default:
			return drawHolder(piece, drawAll(piece.children, cite));
	}
}

function drawHolder(piece: Extract<Piece, { children: Piece[] }>, children: ReactNode): ReactNode {
	switch (piece.kind) {
		case "paragraph":
			return <p>{children}</p>;
		case "tight":
			return children;
		case "heading":
			// A heading of an answer is none of the page, whose outline is the same whatever a model writes.
			return <div className="font-semibold">{children}</div>;
		case "quote":
			return <blockquote className="space-y-2 border-line border-l-2 pl-3 text-soft">{children}</blockquote>;
		case "bullets":
			return <ul className="list-disc space-y-1 pl-5">{children}</ul>;
		case "numbers":
			return (
				<ol className="list-decimal space-y-1 pl-7" start={piece.start}>
					{children}
				</ol>
			);
		case "item":
			return <li className="space-y-1">{children}</li>;
		case "table":
			return <table className="border-collapse">{children}</table>;
		case "head":
			return <thead>{children}</thead>;
		case "body":
			return <tbody>{children}</tbody>;
		case "row":
			return <tr>{children}</tr>;
		case "header":
		case "cell":
			return drawCell(piece.kind === "header" && wordsOf(piece.children).trim() !== "", SIDES[piece.side], children);
		case "strong":
			return <strong className="font-semibold">{children}</strong>;
		case "emphasis":
			return <em>{children}</em>;
		case "deleted":
			return <del>{children}</del>;
		case "link":
			return drawLink(piece.address, wordsOf(piece.children), children);
	}
}

/** A cell without words heads nothing. */
function drawCell(heads: boolean, side: string, children: ReactNode): ReactNode {
	const look = clsx("border border-line px-2 py-1 align-top", side);
	return heads ? (
		<th scope="col" className={clsx(look, "bg-raised font-semibold")}>
			{children}
		</th>
	) : (
		<td className={look}>{children}</td>
	);
}

/** The words never hide where the address leads. */
function drawLink(address: string, words: string, children: ReactNode): ReactNode {
	if (words === address) return <Address address={address} />;
	return (
		<span>
			{children} (<Address address={address} />)
		</span>
	);
}
