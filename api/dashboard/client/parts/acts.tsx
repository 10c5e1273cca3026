import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { type Difference, differences } from '../changes.ts'
import { type Gateway, GatewayError } from '../gateway.ts'
import { Copyable } from './bits.tsx'
import { Dialog } from './Dialog.tsx'
import { Meanwhile } from './Differences.tsx'
import { type Body, type Field, Form } from './Form.tsx'

/** Something that can be done to what is registered: a button, and the dialog that asks for it. */
export type Act = {
  /** What its button says, and for those who don't see where it stands, to what it is done. */
  button: string
  of?: string
  title: string
  text?: ComponentChildren
  fields?: Field[]
  /** What the dialog's button says. */
  action: string
  isDanger?: boolean
  /** Has the gateway do it. The dialog stays with the problem if that is refused. */
  send: (body: Body, changed: Body) => Promise<Done>
  /** For what two people may change at once: the same act on what is there now. */
  reopen?: () => Promise<Reopened>
}

/** What is said once it is done, and what the gateway shows this once. */
export type Done = { said: string; secret?: Secret }
/** For what is done by one request. */
export async function say(request: Promise<unknown>, said: string): Promise<Done> {
  await request
  return { said }
}

type Secret = { title: string; text: string; note?: string }
type Reopened = { act: Act; meanwhile: Difference[] }

/** An act that is done only if nobody else has changed the item since; if somebody has, the dialog shows what. */
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
 * The buttons of acts, the dialog of the one that was chosen, and what is said when it is done, to screen readers as well.
 *
 * @param refresh reads what is shown again
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
        // A button whose words change stays the same, and keeps the focus.
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
