import { Finetuning } from "@/finetune/Finetuning";

export default function FinetuningPage() {
	return <Finetuning />;
}
