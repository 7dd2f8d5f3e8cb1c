import { Suspense } from "react";
import { Runs } from "@/runs/Runs";

export default function RunsPage() {
	return (
		<Suspense>
			<Runs />
		</Suspense>
	);
}
