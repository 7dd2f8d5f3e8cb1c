import type { Metadata } from "next";
import { Suspense } from "react";
import { DocumentPage } from "@/documents/DocumentPage";

export const metadata: Metadata = { title: "Document" };

export default function DocumentsPage() {
	return (
		<Suspense>
			<DocumentPage />
		</Suspense>
	);
}
