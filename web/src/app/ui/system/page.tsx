import { System } from "@/system/System";

export default function SystemPage() {
	return <System />;
}
