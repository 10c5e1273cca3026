import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { type Difference, differences } from '../display/changes.ts'
import { type Gateway, GatewayError } from '../gateway/gateway.ts'
import { Copyable } from './bits.tsx'
import { Dialog } from './Dialog.tsx'
import { Meanwhile } from './Differences.tsx'
import { type Body, type Field, Form } from './Form.tsx'

/** An act on something registered: a button, and the dialog that it opens. */
export type Act = {
  /** The button's text; screen readers also hear what it acts on. */
  button: string
  of?: string
  title: string
  text?: ComponentChildren
  fields?: Field[]
  /** The text of the dialog's button. */
  action: string
  isDanger?: boolean
  /** Sends the request. If it is refused, the dialog stays and shows the problem. */
  send: (body: Body, changed: Body) => Promise<Done>
  /** If two people may change it at once: the same act on its current version. */
  reopen?: () => Promise<Reopened>
}

/** The message once it is done, and the secret that the gateway shows this once. */
export type Done = { said: string; secret?: Secret }
/** For an act that takes one request. */
export async function say(request: Promise<unknown>, said: string): Promise<Done> {
  await request
  return { said }
}

type Secret = { title: string; text: string; note?: string }
type Reopened = { act: Act; meanwhile: Difference[] }

/** An act that needs an unchanged item; if somebody has changed it, the dialog shows how. */
export function versioned<Item extends { version: number }>(
  gateway: Gateway,
  path: string,
  opened: Item,
  actOf: (item: Item, patch: (body: Body) => Promise<unknown>) => Act,
): Act {
  const build = (item: Item): Act => ({
    ...actOf(item, (body) => gateway.patch(path, body, item.version)),
    reopen: async () => {
      const now = await gateway.get<Item>(path)
      return { act: build(now), meanwhile: differences(opened, now) }
    },
  })
  return build(opened)
}

type Words = [button: string, title: string, action: string, said: string]

/** Takes something off sale, or puts it on sale again. */
export function toggle(
  disabledAt: string | null,
  patch: (body: Body) => Promise<unknown>,
  of: string,
  words: { off: Words; on: Words; text: ComponentChildren },
): Act {
  const isDanger = disabledAt === null
  const [button, title, action, said] = isDanger ? words.off : words.on
  const send = () => say(patch({ disabled: isDanger }), said)
  return { button, of, title, text: words.text, action, isDanger, send }
}

/**
 * The buttons of acts, the chosen act's dialog, and the message when it is done, also for screen readers.
 *
 * @param refresh reads the shown data again
 */
export function useActs(refresh: () => void) {
  const [open, setOpen] = useState<Act | Secret>()
  const [said, tell] = useState('')
  const close = () => setOpen(undefined)
  const finish = (done: Done) => {
    setOpen(done.secret)
    tell(done.said)
    refresh()
  }
  return {
    notice: (
      <p class={said === '' ? 'unseen' : 'box good'} role="status">
        {said}
      </p>
    ),
    buttons: (acts: Act[], name?: string) =>
      acts.map((act, at) => (
        // A button keeps its identity when its words change, and so the focus.
        <button key={at} type="button" class={name} onClick={() => setOpen(act)}>
          {act.button}
          {act.of && <span class="unseen"> {act.of}</span>}
        </button>
      )),
    dialog:
      open === undefined ? null : 'send' in open ? (
        <ActDialog act={open} close={close} finish={finish} />
      ) : (
        <SecretDialog {...open} close={close} />
      ),
  }
}

type ActDialogProps = { act: Act; close: () => void; finish: (done: Done) => void }

function ActDialog({ act: opened, close, finish }: ActDialogProps) {
  const [{ act, meanwhile }, set] = useState<Reopened>({ act: opened, meanwhile: [] })
  const { title, text, fields, action, isDanger, send, reopen } = act
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

/** A secret that the gateway shows this once. It is held by this dialog alone, and gone with it. */
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
