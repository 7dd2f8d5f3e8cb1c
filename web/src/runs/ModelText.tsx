"use client";

import { useState } from "react";
import { Dialog } from "@/ui";
import { textParts, whereTo } from "./links";

/** Words of a model. An address among them is no link until somebody asks for one. */
export function ModelText({ text }: { text: string }) {
	const [asked, setAsked] = useState<string | null>(null);
	const url = asked === null ? null : whereTo(asked);
	return (
		<span>
			{textParts(text).map((part, at) =>
				"text" in part ? (
					part.text
				) : (
					<button
						// biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
						key={at}
						type="button"
						title="a model wrote this address: asks before it opens it"
						className="nodrag hit break-all text-left underline decoration-dotted"
						onClick={() => setAsked(part.address)}
					>
						{part.address}
					</button>
				),
			)}
			{url && (
				<Dialog open onClose={() => setAsked(null)} title="Open an address">
					<div className="space-y-3">
						<p>A model wrote this address; nobody has looked at what is there.</p>
						<p className="break-all rounded bg-raised p-2 font-mono text-xs">{url.href}</p>
						<a
							href={url.href}
							target="_blank"
							rel="noopener noreferrer"
							className="hit break-all text-accent underline"
							onClick={() => setAsked(null)}
						>
							Open {url.host}
						</a>
					</div>
				</Dialog>
			)}
		</span>
	);
}
