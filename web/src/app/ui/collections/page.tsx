import type { Metadata } from "next";
import { Collections } from "@/collections/Collections";

export const metadata: Metadata = { title: "Collections" };

export default function CollectionsPage() {
	return <Collections />;
}
