"use client";

import clsx from "clsx";
import { Activity, FolderGit2, GraduationCap, Library, Moon, Server, Sun, Workflow } from "lucide-react";
import Link from "next/link";
import { usePathname } from "next/navigation";
import { Tooltip } from "radix-ui";
import { type ReactNode, useEffect, useState } from "react";
import type { HealthView } from "@/api/client";
import { usePolled } from "@/api/polling";
import { SignIn } from "@/session/SignIn";
import { ownerOf, useSession } from "@/session/store";
import { Alert, IconButton } from "@/ui";
import { followOtherTabs } from "./leave";
import { SignOut } from "./SignOut";

const PAGES = [
	{ href: "/", label: "Canvas", icon: Workflow },
	{ href: "/ui/runs/", label: "Runs", icon: Activity },
	{ href: "/ui/collections/", label: "Collections", icon: Library },
	{ href: "/ui/finetuning/", label: "Fine-tuning", icon: GraduationCap },
	{ href: "/ui/projects/", label: "Projects", icon: FolderGit2 },
	{ href: "/ui/system/", label: "System", icon: Server },
] as const;

/** What stands around every page: where one can go, how the server is, light or dark. */
export function Shell({ children }: { children: ReactNode }) {
	const path = usePathname();
	const health = usePolled<HealthView>("/health", 10_000);
	const [theme, toggle] = useTheme();
	const isOwned = useSession((s) => ownerOf(s) !== null);
	const unknown = useSession((s) => (s.session === null ? s.problem : null));
	const [problem, setProblem] = useState<string | null>(null);
	// Also when a server is back: it may be another one, with other tokens. As long as nobody knows whose the page is, with every
	// answer that comes.
	const again = unknown === null ? null : health.data;
	// biome-ignore lint/correctness/useExhaustiveDependencies: another answer asks again
	useEffect(() => {
		if (!health.offline) void useSession.getState().look();
	}, [health.offline, again]);
	useEffect(followOtherTabs, []);
	return (
		<Tooltip.Provider delayDuration={300}>
			<div className="flex h-screen flex-col">
				<header className="flex items-center gap-1 border-line border-b bg-surface px-3 py-1.5">
					<span className="mr-3 font-semibold tracking-tight">riverrun</span>
					<nav aria-label="Pages" className="flex gap-1">
						{PAGES.map(({ href, label, icon: Icon }) => (
							<Link
								key={href}
								href={href}
								prefetch={false}
								aria-current={path === href ? "page" : undefined}
								className={clsx(
									"flex items-center gap-1.5 whitespace-nowrap rounded-md px-2.5 py-1 max-lg:px-1.5",
									path === href ? "bg-raised font-semibold" : "text-soft hover:bg-raised hover:text-ink",
								)}
							>
								<Icon size={16} aria-hidden />
								{label}
							</Link>
						))}
					</nav>
					<span className="ml-auto whitespace-nowrap text-soft text-xs">
						{health.data && !health.offline && (
							<Link
								href="/ui/system/"
								prefetch={false}
								className={clsx(
									"hit justify-center rounded px-1 hover:bg-raised",
									health.data.status !== "ok" && "text-warn",
								)}
							>
								<span className="whitespace-pre max-lg:hidden">{health.data.version} · </span>
								{health.data.status}
							</Link>
						)}
					</span>
					<SignOut onProblem={setProblem} />
					<IconButton label={theme === "dark" ? "Light" : "Dark"} onClick={toggle}>
						{theme === "dark" ? <Sun size={16} aria-hidden /> : <Moon size={16} aria-hidden />}
					</IconButton>
				</header>
				{health.offline && (
					<p role="alert" className="border-line border-b bg-raised px-3 py-2 text-bad">
						The backend is offline. Start it with <code className="font-mono">riverrun serve</code>; this page goes on
						by itself.
					</p>
				)}
				{(problem ?? unknown) && (
					<div className="border-line border-b px-3 py-2">
						<Alert>{problem ?? unknown}</Alert>
					</div>
				)}
				{/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
				<main tabIndex={0} className="min-h-0 flex-1 overflow-auto">
					{/* Nothing is asked for and nothing shown before it is known for whom. */}
					{isOwned && children}
				</main>
			</div>
			<SignIn />
		</Tooltip.Provider>
	);
}

type Theme = "light" | "dark";

function useTheme(): [Theme, () => void] {
	const [theme, setTheme] = useState<Theme>("light");
	// `theme.js` has chosen it before the page was drawn.
	useEffect(() => setTheme(document.documentElement.dataset.theme === "dark" ? "dark" : "light"), []);
	const toggle = () => {
		const next = theme === "dark" ? "light" : "dark";
		document.documentElement.dataset.theme = next;
		setTheme(next);
		try {
			localStorage.setItem("riverrun.theme", next);
		} catch {
			// The browser's storage is switched off: it is for this page alone then.
		}
	};
	return [theme, toggle];
}
