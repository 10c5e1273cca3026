import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { parseUsdc } from '#protocol/amount'
import { explorerLink, shorten, writeDistance, writeExactUsdc, writeTime } from '../format.ts'
import { href } from '../routing.ts'
import { useNow } from '../useNow.ts'

/** An amount in a column, with all decimals, so that the decimal points align. */
export function Usdc({ decimal, units }: { decimal?: string; units?: string }) {
  const amount = decimal === undefined ? BigInt(units ?? '0') : parseUsdc(decimal)
  return <span class="number">{writeExactUsdc(amount)}</span>
}

export function Time({ at, distance = false }: { at: string; distance?: boolean }) {
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

export function PaymentLink({ paymentId }: { paymentId: string }) {
  return (
    <a class="code" href={href('payments', paymentId)} title={paymentId}>
      {shorten(paymentId)}
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

const tones: Record<string, Tone> = {
  settled: 'good',
  settling: 'busy',
  verified: 'busy',
  retrying: 'busy',
  partially_settled: 'busy',
  failed: 'bad',
}

const statusNames: Record<string, string> = { verified: 'queued', partially_settled: 'partly settled' }

export function nameStatus(status: string): string {
  return statusNames[status] ?? status
}

export function Status({ status }: { status: string }) {
  return <Badge tone={tones[status] ?? 'plain'}>{nameStatus(status)}</Badge>
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

/** A part of a page. */
export function Panel({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="panel">
      <h2>{title}</h2>
      {children}
    </section>
  )
}

/** A column: its title, a row's cell, and how that is set. */
export type Column<Row> = readonly [
  title: string,
  cell: (row: Row) => ComponentChildren,
  kind?: 'number' | 'wrap' | 'actions',
]

/**
 * A table that scrolls by itself on a narrow screen, also with the keyboard. With more than two columns each row stands as
 * a card there, so that its buttons are seen; `data-title` names a cell in it.
 */
export function Table<Row>(props: {
  label: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  keyOf: (row: Row) => string | number
  /** Rows that are no longer in force are grey. */
  isOff?: (row: Row) => boolean
}) {
  const { label, columns, rows, keyOf, isOff } = props
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table class={columns.length > 2 ? 'stacked' : undefined}>
        <thead>
          <tr>
            {columns.map(([title, , kind]) => (
              <th key={title} scope="col" class={kind}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} class={isOff?.(row) ? 'off' : undefined}>
              {columns.map(([title, cell, kind], at) => (
                <td key={title} class={kind} data-title={(at > 0 && title) || undefined}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

/** Under a list that has more than is shown. */
export function ShowMore({ hasMore, showMore }: { hasMore: boolean; showMore: () => void }) {
  if (!hasMore) return null
  return (
    <button type="button" class="quiet" onClick={showMore}>
      Show older ones
    </button>
  )
}

/** The known facts of one thing, by name; undefined and false ones aren't shown. */
export function Facts({ of, isPanel }: { of: Record<string, ComponentChildren>; isPanel?: boolean }) {
  return (
    <dl class={isPanel ? 'panel facts' : 'facts'}>
      {Object.entries(of).map(
        ([title, value]) =>
          value !== undefined &&
          value !== false && (
            <div key={title}>
              <dt>{title}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
    </dl>
  )
}

/** Links, one of which leads to what is shown. */
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
