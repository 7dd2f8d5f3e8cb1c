import { Suspense } from "react";
import { DocumentPage } from "@/documents/DocumentPage";

export default function DocumentsPage() {
	return (
		<Suspense>
			<DocumentPage />
		</Suspense>
	);
}
