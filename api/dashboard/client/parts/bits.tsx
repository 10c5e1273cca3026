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
export function Copyable({
  text,
  whole = false,
  link,
}: {
  text: string
  whole?: boolean
  link?: string | undefined
}) {
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

/** A transaction: its hash, and its page in the network's explorer where there is one. */
export function Transaction({ hash, network }: { hash: string; network: string }) {
  return (
    <span class="transaction">
      <Copyable text={hash} />
      <ExplorerLink network={network} path={`tx/${hash}`} />
    </span>
  )
}

/** @param path `tx/0x…` or `address/0x…` */
export function ExplorerLink({ network, path }: { network: string; path: string }) {
  const link = explorerLink(network, path)
  if (link === undefined) return null
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

const tones: Record<string, 'good' | 'busy' | 'bad' | 'plain'> = {
  settled: 'good',
  settling: 'busy',
  verified: 'busy',
  retrying: 'busy',
  partially_settled: 'busy',
  failed: 'bad',
  voided: 'plain',
}

const statusNames: Record<string, string> = { verified: 'queued', partially_settled: 'partly settled' }

export function Status({ status }: { status: string }) {
  return <span class={`status ${tones[status] ?? 'plain'}`}>{statusNames[status] ?? status}</span>
}

/** How full something is, from 0 to 1. */
export function Meter(props: {
  label: string
  share: number
  text: string
  note?: ComponentChildren
  isFull?: boolean
}) {
  const { label, share, text, note, isFull = share >= 1 } = props
  return (
    <div class="meter">
      <div class="meter-text">
        <span>{label}</span>
        <span class="number">{text}</span>
      </div>
      {/* The element can't be drawn alike in every browser. */}
      {/* biome-ignore lint/a11y/useSemanticElements: see above */}
      <div
        role="meter"
        class={isFull ? 'track full' : 'track'}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
        aria-valuetext={text}
      >
        <div class="fill" style={{ width: `${share * 100}%` }} />
      </div>
      {note === undefined ? null : <p class="note">{note}</p>}
    </div>
  )
}

/** A table that scrolls by itself on a narrow screen, also with the keyboard. */
export function Table({
  label,
  head,
  isStacked = false,
  children,
}: {
  label: string
  head: [title: string, isNumber?: boolean][]
  /** On a narrow screen each row stands as a card, so that its buttons are seen; `data-title` names a cell there. */
  isStacked?: boolean
  children: ComponentChildren
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table class={isStacked ? 'stacked' : undefined}>
        <thead>
          <tr>
            {head.map(([title, isNumber]) => (
              <th key={title} scope="col" class={isNumber ? 'right' : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
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

/** One entry of a `dl`. */
export function Fact({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </div>
  )
}
