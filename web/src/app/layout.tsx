import type { Metadata } from "next";
import type { ReactNode } from "react";
import { Shell } from "@/shell/Shell";
import "./globals.css";

export const metadata: Metadata = {
	title: { default: "riverrun", template: "%s · riverrun" },
	description: "Agents on an event log",
	robots: "noindex",
};

export default function Layout({ children }: { children: ReactNode }) {
	return (
		<html lang="en" suppressHydrationWarning>
			<head>
				<script src="/theme.js" />
			</head>
			<body>
				<Shell>{children}</Shell>
			</body>
		</html>
	);
}
