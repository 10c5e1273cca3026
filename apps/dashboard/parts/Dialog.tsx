import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'

/**
 * A modal dialog, which is open while it is rendered. The browser keeps the focus in the dialog, and Escape closes it. Then the
 * focus returns to its previous element.
 */
export function Dialog(props: {
  title: string
  close: () => void
  /** If true, only the dialog's own buttons close it. */
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
      class="panel"
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        if (!isKept) close()
      }}
      // Some browsers close the dialog at the second Escape, although `onCancel` prevents the default action.
      onClose={close}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {isKept || (
          <button type="button" class="quiet small end" aria-label="Close" onClick={close}>
            ×
          </button>
        )}
      </header>
      {children}
    </dialog>
  )
}
