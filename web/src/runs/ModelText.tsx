"use client";

import { useState } from "react";
import { Dialog } from "@/ui";
import { textParts, whereTo } from "./links";

/** Words of a model. An address among them is no link until somebody asks for one. */
export function ModelText({ text }: { text: string }) {
	return (
		<span>
			{textParts(text).map((part, at) =>
				"text" in part ? (
					part.text
				) : (
					// biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
					<Address key={at} address={part.address} />
				),
			)}
		</span>
	);
}

/** An address that a model wrote: asks before it is opened, and says where it leads. Words where no browser should go. */
export function Address({ address }: { address: string }) {
	const [asked, setAsked] = useState(false);
	const url = whereTo(address);
	if (!url) return address;
	return (
		<>
			<button
				type="button"
				title="a model wrote this address: asks before it opens it"
				className="nodrag hit break-all text-left underline decoration-dotted"
				onClick={() => setAsked(true)}
			>
				{address}
			</button>
			{asked && (
				<Dialog open onClose={() => setAsked(false)} title="Open an address">
					<div className="space-y-3">
						<p>A model wrote this address; nobody has looked at what is there.</p>
						<p className="break-all rounded bg-raised p-2 font-mono text-xs">{url.href}</p>
						<a
							href={url.href}
							target="_blank"
							rel="noopener noreferrer"
							className="hit break-all text-accent underline"
							onClick={() => setAsked(false)}
						>
							Open {url.host}
						</a>
					</div>
				</Dialog>
			)}
		</>
	);
}
