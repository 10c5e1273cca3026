import { useId, useState } from 'preact/hooks'
import { type Destination, matchPages, readDestination } from '../display/destinations.ts'
import { explain } from '../display/explain.ts'
import { href } from '../display/routing.ts'
import type { ProviderPayment } from '../gateway/answers.ts'
import { GatewayError, query } from '../gateway/gateway.ts'
import type { Session } from '../gateway/session.ts'
import { Dialog } from './Dialog.tsx'

export type PalettePage = { title: string; link: string }
export type PaletteProps = { session: Session; pages: readonly PalettePage[]; close: () => void }

type Choice = Destination | ({ kind: 'page' } & PalettePage)

/** A dialog for keyboard users, which finds any page, and the page of a pasted id, address, transaction or receipt. */
export function Palette({ session, pages, close }: PaletteProps) {
  const id = useId()
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const [problem, setProblem] = useState('')
  const destination = readDestination(text)
  const choices: Choice[] = destination
    ? [destination]
    : matchPages(pages, text).map((page) => ({ kind: 'page', ...page }))

  const go = async (choice: Choice | undefined) => {
    if (choice === undefined) return
    try {
      const link = choice.kind === 'page' ? choice.link : await find(session, choice)
      // Close the dialog before the page changes. Otherwise the dialog would take the focus from the new page when it closes.
      close()
      location.hash = link
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      const { title, text } = explain(error)
      setProblem(error.status === 404 ? text : title)
    }
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step === undefined || choices.length === 0) return
    event.preventDefault()
    setAt((at + step + choices.length) % choices.length)
  }

  return (
    <Dialog title="Find" close={close}>
      <form
        class="form palette"
        onSubmit={(event) => {
          event.preventDefault()
          void go(choices[at])
        }}
      >
        <input
          role="combobox"
          aria-label="A page, a payment’s id, an address or a transaction"
          aria-expanded="true"
          aria-controls={id}
          aria-autocomplete="list"
          aria-activedescendant={choices[at] && `${id}-${at}`}
          placeholder="A page, pay_…, an address or a transaction"
          value={text}
          autofocus
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => {
            setText(event.currentTarget.value)
            setAt(0)
            setProblem('')
          }}
          onKeyDown={onKeyDown}
        />
        <div id={id} role="listbox" aria-label="Found">
          {choices.map((choice, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the input above handles the keys, as in a combobox
            // biome-ignore lint/a11y/useFocusableInteractive: the input keeps the focus and names the active option
            <div
              key={choice.title}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === at}
              onClick={() => void go(choice)}
            >
              {choice.title}
            </div>
          ))}
        </div>
        <p role="status" class={problem ? 'problem' : 'note'}>
          {problem || (choices.length === 0 && 'No page matches. Paste an id, an address or a hash.')}
        </p>
      </form>
    </Dialog>
  )
}

/** Looks up an id. @throws {GatewayError} 404 if it belongs to another provider, or doesn't exist */
async function find({ gateway, path }: Session, wanted: Exclude<Destination, { kind: 'page' }>) {
  if (wanted.kind === 'tab') {
    const { paymentId } = await gateway.get<{ paymentId: string }>(`tabs/${wanted.tabId}`)
    return href('tabs', paymentId)
  }
  const asked = query({ tx_hash: wanted.hash, limit: 2 })
  const { payments } = await gateway.get<{ payments: ProviderPayment[] }>(`${path}/payments${asked}`)
  const [first, second] = payments
  if (first === undefined) {
    throw new GatewayError(404, 'unknown_payment', 'This transaction settled none of your payments.')
  }
  if (second === undefined) return href('payments', first.paymentId)
  return href('payouts', 'batches', first.network, wanted.hash)
}
