import { Canvas } from "@/canvas/Canvas";

export default function CanvasPage() {
	return <Canvas />;
}
