import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useState } from 'preact/hooks'
import { explorerLink, shorten, writeDistance, writeExactUsdc, writeTime } from '../display/format.ts'
import { useNow } from '../display/useNow.ts'

/** An amount in a column, with all decimals, so that the decimal points align. */
export function Usdc({ decimal, units }: { decimal?: string; units?: string }) {
  const amount = decimal === undefined ? BigInt(units ?? '0') : parseUsdc(decimal)
  return <span class="number">{writeExactUsdc(amount)}</span>
}

type TimeProps = { at: string | null; distance?: boolean; none?: ComponentChildren }

/** A time, or its distance from now; `none` where there is no such time. */
export function Time({ at, distance = false, none = '–' }: TimeProps) {
  if (at === null) return <>{none}</>
  return (
    <time dateTime={at} title={at}>
      {distance ? <Distance at={at} /> : writeTime(at)}
    </time>
  )
}

function Distance({ at }: { at: string }) {
  return <>{writeDistance(useNow(), Date.parse(at))}</>
}

const copiedMs = 1_500

/** A long text, shortened, with a button that copies the whole. */
export function Copyable({ text, whole = false, link }: { text: string; whole?: boolean; link?: string }) {
  const shown = (
    <span class="code" title={text}>
      {whole ? text : shorten(text)}
    </span>
  )
  return (
    <span class={whole ? 'copyable whole' : 'copyable'}>
      {link === undefined ? shown : <a href={link}>{shown}</a>}
      <CopyButton text={text} label={`Copy ${shorten(text)}`} />
    </span>
  )
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isCopied, setIsCopied] = useState(false)
  useEffect(() => {
    if (!isCopied) return
    const timer = setTimeout(() => setIsCopied(false), copiedMs)
    return () => clearTimeout(timer)
  }, [isCopied])
  return (
    <button
      type="button"
      class="copy"
      aria-label={label}
      // Without a secure context there is no clipboard; the user can still select the text.
      hidden={navigator.clipboard === undefined}
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => setIsCopied(true))
      }}
    >
      {isCopied ? 'copied' : 'copy'}
    </button>
  )
}

/** An address or URL in full, with line breaks if needed. */
export function Code({ children }: { children: string }) {
  return <span class="code break">{children}</span>
}

/** A transaction: its hash, with a link to the network's explorer if there is one. */
export function Transaction({ hash, network }: { hash: string; network: string }) {
  return (
    <>
      <Copyable text={hash} /> <ExplorerLink network={network} path={`tx/${hash}`} />
    </>
  )
}

/** @param path `tx/0x…` or `address/0x…` */
export function ExplorerLink({ network, path }: { network: string; path: string }) {
  const link = explorerLink(network, path)
  // A dashboard on this machine most often shows a chain that plays the network, which the network's explorer doesn't know.
  if (link === undefined || ['127.0.0.1', 'localhost', '[::1]'].includes(location.hostname)) return null
  return (
    <a href={link} target="_blank" rel="noopener noreferrer">
      explorer<span class="unseen"> (opens in a new tab)</span>
    </a>
  )
}

type Tone = 'good' | 'busy' | 'bad' | 'plain'

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`status ${tone}`}>{children}</span>
}

/** Whether something registered is in force. */
export function State({ isOn, yes, no }: { isOn: boolean; yes: string; no: string }) {
  return <Badge tone={isOn ? 'good' : 'plain'}>{isOn ? yes : no}</Badge>
}

/** How full something is, from 0 to 1. */
export function Meter({ label, share, text }: { label: string; share: number; text: string }) {
  return (
    <div>
      <p class="line">
        {label} <span class="note number end">{text}</span>
      </p>
      {/* The element can't be drawn alike in every browser. */}
      {/* biome-ignore lint/a11y/useSemanticElements: see above */}
      <div
        role="meter"
        class={share >= 1 ? 'track full' : 'track'}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
        aria-valuetext={text}
      >
        <div class="fill" style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  )
}

type PanelProps = {
  title: ComponentChildren
  /** What it is called where its title doesn't say it. */
  label?: string
  beside?: ComponentChildren
  children: ComponentChildren
}

/** A part of a page. */
export function Panel({ title, label, beside, children }: PanelProps) {
  return (
    <section class="panel" aria-label={label}>
      <header>
        <h2>{title}</h2>
        {beside}
      </header>
      {children}
    </section>
  )
}

/** What is known of one thing, by its names; what is null or false isn't shown. */
export function Facts({ of, isPanel }: { of: Record<string, ComponentChildren>; isPanel?: boolean }) {
  const known = Object.entries(of).filter(([, value]) => value != null && value !== false)
  return (
    <dl class={isPanel ? 'panel facts' : 'facts'}>
      {known.map(([title, value]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

/** Each attempt at something, folded. */
export function Attempts<Attempt extends { attempt: number }>(props: {
  title: string
  of: readonly Attempt[]
  children: (one: Attempt) => ComponentChildren
}) {
  const { title, of, children } = props
  if (of.length === 0) return null
  return (
    <details>
      <summary>{title}</summary>
      <ol class="attempts">
        {of.map((one) => (
          <li key={one.attempt}>{children(one)}</li>
        ))}
      </ol>
    </details>
  )
}

/** Links of which one leads to what is shown. */
export function Tabs(props: {
  label: string
  links: readonly (readonly [href: string, title: string])[]
  current: string
}) {
  const { label, links, current } = props
  return (
    <nav aria-label={label}>
      {links.map(([link, title]) => (
        <a key={link} href={link} aria-current={link === current ? 'page' : undefined}>
          {title}
        </a>
      ))}
    </nav>
  )
}

type Figure = readonly [title: string, value: string, note: ComponentChildren, unit?: string]

/** The most important numbers of a page, and what they mean. */
export function Figures({ of }: { of: readonly Figure[] }) {
  return (
    <dl class="figures">
      {of.map(([title, value, note, unit]) => (
        <div key={title} class="figure">
          <dt>{title}</dt>
          <dd>
            <span class="value">
              {value}
              {unit !== undefined && <small> {unit}</small>}
            </span>
            <span class="note">{note}</span>
          </dd>
        </div>
      ))}
    </dl>
  )
}

export type Options<Value = string> = readonly (readonly [value: Value, title: string])[]

/** What a select offers. */
export function Choices({ of }: { of: Options }) {
  return of.map(([value, title]) => (
    <option key={value} value={value}>
      {title}
    </option>
  ))
}

type ChoiceProps<Value> = {
  label: string
  options: Options<Value>
  value: Value
  choose: (value: Value) => void
}

/** One of a few, side by side. */
export function Choice<Value extends string>({ label, options, value, choose }: ChoiceProps<Value>) {
  const name = useId()
  return (
    <fieldset class="choice">
      <legend class="unseen">{label}</legend>
      {options.map(([one, title]) => (
        <label key={one}>
          <input type="radio" name={name} checked={one === value} onChange={() => choose(one)} />
          <span>{title}</span>
        </label>
      ))}
    </fieldset>
  )
}
