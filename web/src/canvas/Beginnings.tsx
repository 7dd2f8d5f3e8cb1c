"use client";

import { Button } from "@/ui";
import { useCanvas } from "./store";
import { TEMPLATES } from "./templates";

/** Canvases to begin with, as a list to choose from. */
export function Beginnings({ onChosen }: { onChosen?: () => void }) {
	const replace = useCanvas((s) => s.replace);
	return (
		<ul className="space-y-2">
			{TEMPLATES.map((template) => (
				<li key={template.title}>
					<Button
						className="w-full flex-col items-start text-left"
						onClick={() => {
							replace(template.make(useCanvas.getState().history.present.namespace));
							onChosen?.();
						}}
					>
						<span className="font-semibold">{template.title}</span>
						<span className="font-normal text-soft">{template.description}</span>
					</Button>
				</li>
			))}
		</ul>
	);
}
