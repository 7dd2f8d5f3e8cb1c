import { Collections } from "@/collections/Collections";

export default function CollectionsPage() {
	return <Collections />;
}
