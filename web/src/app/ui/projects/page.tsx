import { Suspense } from "react";
import { Projects } from "@/projects/Projects";

export default function ProjectsPage() {
	return (
		<Suspense>
			<Projects />
		</Suspense>
	);
}
