"use client";

import clsx from "clsx";
import Link from "next/link";
import { useRouter, useSearchParams } from "next/navigation";
import { usePolled } from "@/api/polling";
import type { Page, ProjectView } from "@/api/shapes";
import { homeNamespace, useSession } from "@/session/store";
import { Empty, Field, Loading, Panel, SettledInput, Status } from "@/ui";
import { bytes, count } from "@/ui/words";
import { Import } from "./Import";
import { Linters } from "./Linters";
import { useNamespace } from "./namespace";
import { ProjectDetail } from "./ProjectDetail";
import { inNamespace, pageOf } from "./paths";

/** Imported code, what is known of it, and changes to the copy: one project in full by `?id=`. */
export function Projects() {
	const id = useSearchParams().get("id");
	const router = useRouter();
	const namespace = useNamespace();
	const query = new URLSearchParams({ limit: "200", ...inNamespace(namespace) });
	const projects = usePolled<Page<ProjectView>>(`/projects?${query}`, 5_000);
	return (
		<div className="grid grid-cols-[minmax(0,1fr)] items-start gap-3 p-3 lg:grid-cols-[20rem_minmax(0,1fr)]">
			<h1 className="sr-only">Projects</h1>
			<div className="space-y-3">
				<Import
					onImported={(made) => {
						projects.refresh();
						router.push(pageOf(made, namespace));
					}}
				/>
				<Panel title="Projects">
					<Namespace />
					<Loading of={projects} />
					{projects.data?.items.length === 0 && <Empty>No projects.</Empty>}
					<ul className="mt-2">
						{projects.data?.items.map((project) => (
							<li key={project.project_id} className="border-line border-b last:border-0">
								<Link
									href={pageOf(project.project_id, namespace)}
									prefetch={false}
									aria-current={project.project_id === id}
									className={clsx(
										"block rounded px-2 py-1.5 hover:bg-raised",
										project.project_id === id && "bg-raised",
									)}
								>
									<span className="block break-words font-medium">{project.name}</span>
									<span className="flex flex-wrap items-center gap-2 text-soft text-xs">
										<Status of={project.status} />
										{count(project.files, "file")}, {bytes(project.size_bytes)}
									</span>
								</Link>
							</li>
						))}
					</ul>
				</Panel>
			</div>
			<div className="min-w-0 space-y-3">
				{id ? (
					<ProjectDetail key={id} id={id} onStatus={projects.refresh} />
				) : (
					<>
						<Empty>Import code, or choose a project.</Empty>
						<Linters />
					</>
				)}
			</div>
		</div>
	);
}

/** Whose projects are shown, and where one is imported. */
function Namespace() {
	const router = useRouter();
	const home = useSession((s) => homeNamespace(s.session));
	const shown = useNamespace() ?? home;
	return (
		<Field label="namespace">
			<SettledInput
				value={shown}
				fallback={home}
				onSettle={(wanted) => router.push(pageOf(null, wanted === home ? null : wanted))}
			/>
		</Field>
	);
}
