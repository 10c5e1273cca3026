import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { type Difference, differences } from '../display/changes.ts'
import { type Gateway, GatewayError } from '../gateway/gateway.ts'
import { Dialog } from './Dialog.tsx'
import { Meanwhile } from './Differences.tsx'
import { type Body, type Field, Form } from './Form.tsx'
import { Copyable } from './ui.tsx'

/** An action on a registered item: a button, and the dialog that the button opens. */
export type Action = {
  /** The button's text; screen readers also announce the item. */
  button: string
  of?: string
  title: string
  text?: ComponentChildren
  fields?: Field[]
  /** The text of the dialog's button. */
  action: string
  isDanger?: boolean
  /** Sends the request. If it is rejected, the dialog stays open and shows the problem. */
  send: (body: Body, changed: Body) => Promise<Done>
  /** For an item that two people may change at once: returns the same action for the current version. */
  reopen?: () => Promise<Reopened>
}

/** The message after the action, an optional warning, and the secret, which the gateway shows only once. */
export type Done = { said: string; warning?: string; secret?: Secret }

/** Runs an action that takes one request. */
export async function say(request: Promise<unknown>, said: string): Promise<Done> {
  await request
  return { said }
}

type Secret = { title: string; text: string; note?: string }
type Reopened = { chosen: Action; meanwhile: Difference[] }

/** Returns an action that is done only if the item is unchanged. If someone else has changed it, the dialog shows the changes. */
export function versioned<Item extends { version: number }>(
  gateway: Gateway,
  path: string,
  opened: Item,
  actionOf: (item: Item, patch: (body: Body) => Promise<unknown>) => Action,
): Action {
  const build = (item: Item): Action => ({
    ...actionOf(item, (body) => gateway.patch(path, body, item.version)),
    reopen: async () => {
      const now = await gateway.get<Item>(path)
      return { chosen: build(now), meanwhile: differences(opened, now) }
    },
  })
  return build(opened)
}

type Words = [button: string, title: string, action: string, said: string]

/** Returns the action that disables an item, or enables it again. */
export function toggle(
  disabledAt: string | null,
  patch: (body: Body) => Promise<unknown>,
  of: string,
  words: { off: Words; on: Words; text: ComponentChildren },
): Action {
  const isDanger = disabledAt === null
  const [button, title, action, said] = isDanger ? words.off : words.on
  const send = () => say(patch({ disabled: isDanger }), said)
  return { button, of, title, text: words.text, action, isDanger, send }
}

/**
 * Returns the buttons of actions, the dialog of the chosen action, and the message after it, also for screen readers.
 *
 * @param refresh reads the shown data again
 */
export function useActions(refresh: () => void) {
  const [open, setOpen] = useState<Action | Secret>()
  const [{ said, warning }, tell] = useState<Done>({ said: '' })
  const close = () => setOpen(undefined)
  const finish = (done: Done) => {
    setOpen(done.secret)
    tell(done)
    refresh()
  }
  return {
    notice: (
      <>
        <p class={said === '' ? 'unseen' : 'box good'} role="status">
          {said}
        </p>
        <p class={warning === undefined ? 'unseen' : 'box busy'} role="status">
          {warning}
        </p>
      </>
    ),
    buttons: (actions: Action[], name?: string) =>
      actions.map((chosen, at) => (
        // Keep the button's identity, and so the focus, when its text changes.
        <button key={at} type="button" class={name} onClick={() => setOpen(chosen)}>
          {chosen.button}
          {chosen.of && <span class="unseen"> {chosen.of}</span>}
        </button>
      )),
    dialog:
      open === undefined ? null : 'send' in open ? (
        <ActionDialog chosen={open} close={close} finish={finish} />
      ) : (
        <SecretDialog {...open} close={close} />
      ),
  }
}

type ActionDialogProps = { chosen: Action; close: () => void; finish: (done: Done) => void }

function ActionDialog({ chosen: opened, close, finish }: ActionDialogProps) {
  const [{ chosen, meanwhile }, set] = useState<Reopened>({ chosen: opened, meanwhile: [] })
  const { title, text, fields, action, isDanger, send, reopen } = chosen
  return (
    <Dialog title={title} close={close}>
      <Form
        fields={fields ?? []}
        action={action}
        isDanger={isDanger}
        cancel={close}
        send={async (body, changed) => {
          try {
            finish(await send(body, changed))
          } catch (error) {
            const isLate = error instanceof GatewayError && error.code === 'precondition_failed'
            if (isLate && reopen) set(await reopen())
            throw error
          }
        }}
      >
        {text && <div class="text">{text}</div>}
        <Meanwhile differences={meanwhile} />
      </Form>
    </Dialog>
  )
}

/**
 * Shows a secret that the gateway shows only once. The secret is only in this dialog, and is discarded when the dialog closes.
 */
function SecretDialog({ title, close, ...secret }: Secret & { close: () => void }) {
  return (
    <Dialog title={title} close={close} isKept>
      <ShownSecret {...secret} />
      <div class="buttons">
        <button type="button" onClick={close}>
          I have stored it
        </button>
      </div>
    </Dialog>
  )
}

const storeIt = 'Store it now: it is not shown again, and the gateway keeps only its hash.'

export function ShownSecret({ text, note = storeIt }: Omit<Secret, 'title'>) {
  return (
    <div class="box">
      <p>
        <Copyable text={text} whole />
      </p>
      <p class="note">{note}</p>
    </div>
  )
}
