import { Copyable } from './bits.tsx'
import { Dialog } from './Dialog.tsx'

/** A secret that the gateway shows this once. It is held by this dialog alone, and gone with it. */
export function SecretDialog(props: { title: string; secret: string; note: string; close: () => void }) {
  const { title, secret, note, close } = props
  return (
    <Dialog title={title} close={close} isKept>
      <Secret secret={secret} note={note} />
      <div class="buttons">
        <button type="button" onClick={close}>
          I have stored it
        </button>
      </div>
    </Dialog>
  )
}

export function Secret({ secret, note }: { secret: string; note: string }) {
  return (
    <div class="secret">
      <p>
        <Copyable text={secret} whole />
      </p>
      <p class="note">{note}</p>
    </div>
  )
}
