import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'
import { useForm } from '../useForm.ts'
import { Form } from './Form.tsx'

/**
 * A modal dialog, open as long as it is rendered. The browser keeps the focus in it, and Escape closes it; the focus goes
 * back to where it came from.
 */
export function Dialog(props: {
  title: string
  close: () => void
  /** Only what is in it closes it. */
  isKept?: boolean
  children: ComponentChildren
}) {
  const { title, close, isKept = false, children } = props
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const opener = document.activeElement
    dialog.current?.showModal()
    return () => {
      const back =
        opener instanceof HTMLElement && opener.isConnected ? opener : document.querySelector('main')
      back?.focus()
    }
  }, [])
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        if (!isKept) close()
      }}
      // A browser may close it all the same, at the second Escape.
      onClose={close}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {isKept || (
          <button type="button" class="quiet close" aria-label="Close" onClick={close}>
            ×
          </button>
        )}
      </header>
      {children}
    </dialog>
  )
}

/** Asks before something is done that can't be taken back easily. */
export function Confirm(props: {
  title: string
  action: string
  isDanger?: boolean
  close: () => void
  /** Done with the answer of the gateway; the dialog stays with its problem if it refuses. */
  run: () => Promise<void>
  children: ComponentChildren
}) {
  const { title, action, isDanger = true, close, run, children } = props
  const form = useForm({}, run)
  return (
    <Dialog title={title} close={close}>
      <Form form={form} action={action} isDanger={isDanger} cancel={close}>
        <div class="text">{children}</div>
      </Form>
    </Dialog>
  )
}
