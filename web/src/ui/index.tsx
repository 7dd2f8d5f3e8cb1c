"use client";

/** The few controls that every page is made of. */

import clsx from "clsx";
import { DropdownMenu, Dialog as RadixDialog, Tooltip } from "radix-ui";
import {
	type ButtonHTMLAttributes,
	type ComponentProps,
	type InputHTMLAttributes,
	type ReactNode,
	type SelectHTMLAttributes,
	type TextareaHTMLAttributes,
	useRef,
	useState,
} from "react";
import { ApiError, describe, Offline, TimedOut } from "@/api/client";
import type { Polled } from "@/api/polling";
import { settled } from "./words";

type Tone = "plain" | "accent" | "danger" | "quiet";

const TONES: Record<Tone, string> = {
	plain: "border border-line bg-surface hover:bg-raised",
	accent: "bg-accent text-accent-ink hover:opacity-90",
	danger: "border border-bad text-bad hover:bg-raised",
	quiet: "hover:bg-raised",
};

export function Button({
	tone = "plain",
	className,
	...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { tone?: Tone }) {
	return (
		<button
			type="button"
			className={clsx(
				"inline-flex min-h-8 items-center justify-center gap-1.5 rounded-md px-2.5 py-1 font-medium disabled:opacity-50",
				TONES[tone],
				className,
			)}
			{...rest}
		/>
	);
}

/** A button that shows a picture; its label is read out and shown on hover. */
export function IconButton({
	label,
	children,
	...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { label: string; tone?: Tone }) {
	return (
		<Tooltip.Root>
			<Tooltip.Trigger asChild>
				<Button tone="quiet" aria-label={label} {...rest}>
					{children}
				</Button>
			</Tooltip.Trigger>
			<Tooltip.Portal>
				<Tooltip.Content sideOffset={6} className="z-50 rounded bg-ink px-2 py-1 text-ground text-xs">
					{label}
				</Tooltip.Content>
			</Tooltip.Portal>
		</Tooltip.Root>
	);
}

/** How what is typed into looks. */
export const FIELD = "w-full rounded-md border border-line bg-surface px-2 py-1.5 text-ink placeholder:text-soft";

export function Field({ label, children }: { label: string; children: ReactNode }) {
	return (
		// biome-ignore lint/a11y/noLabelWithoutControl: the control is handed in
		<label className="block">
			<span className="mb-1 block text-soft text-xs">{label}</span>
			{children}
		</label>
	);
}

export function Input({ className, ...rest }: InputHTMLAttributes<HTMLInputElement>) {
	return <input className={clsx(FIELD, className)} {...rest} />;
}

type SettledProps = Omit<InputHTMLAttributes<HTMLInputElement>, "value" | "onChange" | "onBlur" | "onKeyDown"> & {
	value: string;
	/** What stands for an empty field. */
	fallback?: string;
	/** Another value than the present one. `false`: it is not taken, and the field shows the present one again. */
	onSettle: (value: string) => unknown;
};

/** What is typed counts when the field is left, or with Enter; Escape takes it back. */
export function SettledInput({ value, fallback = "", onSettle, ...rest }: SettledProps) {
	const [text, setText] = useState(value);
	const [present, setPresent] = useState(value);
	if (present !== value) {
		setPresent(value);
		setText(value);
	}
	const settle = () => {
		const next = settled(text, value, fallback);
		const isTaken = next !== null && onSettle(next) !== false;
		setText(isTaken ? next : value);
	};
	return (
		<Input
			{...rest}
			value={text}
			onChange={(event) => setText(event.target.value)}
			onBlur={settle}
			onKeyDown={(event) => {
				if (event.key === "Enter") settle();
				if (event.key === "Escape") setText(value);
			}}
		/>
	);
}

/** Chooses files, by a button that looks like the others. */
export function FileInput({ className, ...rest }: Omit<ComponentProps<"input">, "type">) {
	return (
		<input
			type="file"
			className={clsx(
				"w-full text-soft text-xs file:mr-2 file:min-h-8 file:rounded-md file:border file:border-line file:border-solid file:bg-surface file:px-2.5 file:py-1 file:font-medium file:text-ink hover:file:bg-raised",
				className,
			)}
			{...rest}
		/>
	);
}

export function Select({ className, ...rest }: SelectHTMLAttributes<HTMLSelectElement>) {
	return <select className={clsx(FIELD, className)} {...rest} />;
}

export function Dialog({
	open,
	onClose,
	title,
	wide,
	close = "Close",
	actions,
	children,
}: {
	open: boolean;
	onClose: () => void;
	title: string;
	wide?: boolean;
	/** What the button says that only closes it. */
	close?: string;
	/** What else may be done, in front of that button. */
	actions?: ReactNode;
	children: ReactNode;
}) {
	/** What had the focus. Radix gives it back to a trigger of its own alone, and dialogs here have none. */
	const before = useRef<Element | null>(null);
	return (
		<RadixDialog.Root open={open} onOpenChange={(next) => !next && onClose()}>
			<RadixDialog.Portal>
				<RadixDialog.Overlay className="fixed inset-0 z-40 bg-black/50" />
				<RadixDialog.Content
					aria-describedby={undefined}
					onOpenAutoFocus={() => {
						before.current = document.activeElement;
					}}
					onCloseAutoFocus={(event) => {
						event.preventDefault();
						if (before.current instanceof HTMLElement) {
							before.current.focus();
						}
					}}
					className={clsx(
						// What is typed here is not for the canvas below: `nokey` is React Flow's word for it.
						"nokey fixed top-1/2 left-1/2 z-50 max-h-[85vh] w-[92vw] -translate-x-1/2 -translate-y-1/2 overflow-auto rounded-lg border border-line bg-surface p-4 shadow-xl",
						wide ? "max-w-4xl" : "max-w-lg",
					)}
				>
					<RadixDialog.Title className="mb-3 break-words font-semibold text-base">{title}</RadixDialog.Title>
					{children}
					<div className="mt-4 flex flex-wrap gap-2">
						{actions}
						<RadixDialog.Close asChild>
							<Button>{close}</Button>
						</RadixDialog.Close>
					</div>
				</RadixDialog.Content>
			</RadixDialog.Portal>
		</RadixDialog.Root>
	);
}

/** A button that opens a list of actions. */
export function Menu({
	label,
	icon,
	items,
}: {
	label: string;
	icon: ReactNode;
	items: { label: string; act: () => void }[];
}) {
	return (
		<DropdownMenu.Root>
			<DropdownMenu.Trigger asChild>
				<Button tone="quiet" aria-label={label} title={label}>
					{icon}
				</Button>
			</DropdownMenu.Trigger>
			<DropdownMenu.Portal>
				<DropdownMenu.Content
					sideOffset={4}
					// Keys that choose here are not for the canvas below: `nokey` is React Flow's word for it.
					className="nokey z-50 min-w-40 rounded-md border border-line bg-surface p-1 text-ink shadow-xl"
				>
					{items.map((item) => (
						<DropdownMenu.Item
							key={item.label}
							onSelect={item.act}
							className="cursor-default rounded px-2 py-1.5 outline-none data-[highlighted]:bg-raised"
						>
							{item.label}
						</DropdownMenu.Item>
					))}
				</DropdownMenu.Content>
			</DropdownMenu.Portal>
		</DropdownMenu.Root>
	);
}

export function Panel({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
	return (
		<section aria-label={title} className="rounded-lg border border-line bg-surface">
			<header className="flex items-center justify-between gap-2 border-line border-b px-3 py-2">
				<h2 className="min-w-0 break-words font-semibold">{title}</h2>
				{actions}
			</header>
			<div className="p-3">{children}</div>
		</section>
	);
}

export function Alert({ children }: { children: ReactNode }) {
	return children ? (
		<p role="alert" className="break-words text-bad">
			{children}
		</p>
	) : null;
}

/** Why something can't be shown; that nobody answers is said above every page, and who must sign in is asked in front of it. */
export function Refused({ error }: { error: unknown }) {
	return error && !isSaidElsewhere(error) ? <Alert>{describe(error)}</Alert> : null;
}

function isSaidElsewhere(error: unknown): boolean {
	// A server that answers others may take too long for one thing.
	if (error instanceof TimedOut) return false;
	return error instanceof Offline || (error instanceof ApiError && error.status === 401);
}

/** What stands where an answer will be: that it is on its way, unless it comes soon, or why it can't be shown. */
export function Loading({ of: { data, error } }: { of: Pick<Polled<unknown>, "data" | "error"> }) {
	return data === null && !error ? <p className="late py-2 text-soft">Reading…</p> : <Refused error={error} />;
}

export function TextArea({ className, ...rest }: TextareaHTMLAttributes<HTMLTextAreaElement>) {
	return <textarea className={clsx(FIELD, "resize-y", className)} {...rest} />;
}

/** A table with a head; it scrolls by itself where it is too wide. */
export function Table({ head, children }: { head: ReactNode[]; children: ReactNode }) {
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
		<section className="overflow-x-auto" tabIndex={0} aria-label="table">
			<table className="w-full">
				<thead>
					<tr className="text-left text-soft text-xs">
						{head.map((title, at) => (
							// biome-ignore lint/suspicious/noArrayIndexKey: columns have no other name
							<th key={at} className="whitespace-nowrap pr-3 font-medium">
								{title}
							</th>
						))}
					</tr>
				</thead>
				<tbody className="[&>tr]:border-line [&>tr]:border-t [&>tr]:align-baseline [&_td]:py-1 [&_td]:pr-3">
					{children}
				</tbody>
			</table>
		</section>
	);
}

const STATUS: Record<string, string> = {
	running: "text-accent",
	succeeded: "text-good",
	up: "text-good",
	ok: "text-good",
	indexed: "text-good",
	ready: "text-good",
	applied: "text-good",
	analyzed: "text-good",
	ran: "text-good",
	passed: "text-good",
	failed: "text-bad",
	down: "text-bad",
	critical: "text-bad",
	high: "text-bad",
	refused: "text-bad",
	cancelled: "text-warn",
	missing: "text-warn",
	open: "text-warn",
	waiting_approval: "text-warn",
	degraded: "text-warn",
	medium: "text-warn",
	stale: "text-warn",
	retired: "text-warn",
};

/** A state in words; its colour only repeats them. */
export function Status({ of }: { of: string }) {
	return (
		<span
			className={clsx("tinted whitespace-nowrap rounded px-1.5 py-0.5 font-medium text-xs", STATUS[of] ?? "text-ink")}
		>
			{of.replaceAll("_", " ")}
		</span>
	);
}

export function Empty({ children }: { children: ReactNode }) {
	return <p className="py-6 text-center text-soft">{children}</p>;
}
