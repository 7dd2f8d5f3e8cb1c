"use client";

import { Alert, Button, Panel } from "@/ui";

/** What stands where a page was that broke. Runs go on without it: they live on the server. */
export default function Broken({ error, reset }: { error: Error; reset: () => void }) {
	return (
		<div className="mx-auto max-w-lg p-3">
			<Panel title="This page broke">
				<Alert>{error.message}</Alert>
				<p className="my-2 text-soft">What runs on the server goes on, and the canvas is kept in the browser.</p>
				<Button tone="accent" onClick={reset}>
					Show it again
				</Button>
			</Panel>
		</div>
	);
}
