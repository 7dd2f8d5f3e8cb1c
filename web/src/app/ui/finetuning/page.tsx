import type { Metadata } from "next";
import { Finetuning } from "@/finetune/Finetuning";

export const metadata: Metadata = { title: "Fine-tuning" };

export default function FinetuningPage() {
	return <Finetuning />;
}
