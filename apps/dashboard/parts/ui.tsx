import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useState } from 'preact/hooks'
import { explorerLink, shorten, writeDistance, writeExactUsdc, writeTime } from '../display/format.ts'
import { briefTimeFormat } from '../display/locale.ts'
import { useNow } from '../display/useNow.ts'

/** Shows an amount in a column, with all decimals, so that the decimal points align. */
export function Usdc({ decimal, units }: { decimal?: string; units?: string }) {
  const amount = decimal === undefined ? BigInt(units ?? '0') : parseUsdc(decimal)
  return <span class="number">{writeExactUsdc(amount)}</span>
}

type TimeProps = { at: string | null; distance?: boolean; none?: ComponentChildren }

/** Shows a time, or its distance from now; `none` if there is no time. */
export function Time({ at, distance = false, none = '–' }: TimeProps) {
  if (at === null) return <>{none}</>
  return (
    <time dateTime={at} title={at}>
      {distance ? <Distance at={at} /> : <WrittenTime at={at} />}
    </time>
  )
}

/** Shows the full time; a row on a narrow screen shows the brief form instead. */
function WrittenTime({ at }: { at: string }) {
  return (
    <>
      <span class="brief">{briefTimeFormat().format(new Date(at))}</span>
      <span class="full">{writeTime(at)}</span>
    </>
  )
}

function Distance({ at }: { at: string }) {
  return <>{writeDistance(useNow(), Date.parse(at))}</>
}

const copiedMs = 1_500

/** Shows a long text in shortened form, with a button that copies all of it. */
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
      // Without a secure context, there is no clipboard. The user can still select the text.
      hidden={navigator.clipboard === undefined}
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => setIsCopied(true))
      }}
    >
      {isCopied ? 'copied' : 'copy'}
    </button>
  )
}

/** Shows an address or URL in full, with line breaks if needed. */
export function Code({ children }: { children: string }) {
  return <span class="code break">{children}</span>
}

/** Shows a transaction's hash, with a link to the network's explorer if there is one. */
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
  // A dashboard on this machine usually shows a local chain that has a real network's id, and that network's explorer doesn't
  // know the chain's transactions.
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

/** Shows whether a registered item is active. */
export function State({ isOn, yes, no }: { isOn: boolean; yes: string; no: string }) {
  return <Badge tone={isOn ? 'good' : 'plain'}>{isOn ? yes : no}</Badge>
}

type MeterProps = {
  label: string
  share: number
  text: string
  /** Whether the meter shows a part of a whole. If so, a full meter is not a warning. */
  isPart?: boolean
}

/** Shows a fill level from 0 to 1. */
export function Meter({ label, share, text, isPart = false }: MeterProps) {
  return (
    <div>
      <p class="line">
        {label} <span class="note number end">{text}</span>
      </p>
      {/* Don't use the native element, because each browser draws it differently. */}
      {/* biome-ignore lint/a11y/useSemanticElements: see above */}
      <div
        role="meter"
        class={share >= 1 && !isPart ? 'track full' : 'track'}
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
  /** The accessible name, if the title isn't clear enough. */
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

/** Shows an item's facts by their names. A fact that is null or false isn't shown. */
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

/** Shows all attempts, folded. */
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

/** Shows links, of which one leads to the current page. */
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

/** Shows the most important numbers of a page, with notes on their meaning. */
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

/** Renders the options of a select. */
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

/** Shows a few options side by side, of which the user chooses one. */
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
