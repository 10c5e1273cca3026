/**
 * Returns a text from a third party as one line of plain text. Removes control characters and characters that change the direction of writing,
 * because a name with such characters could rearrange the words around it.
 *
 * @param max maximum number of characters. A longer text is cut and ends with `…`.
 */
export function plainText(text: string, max: number): string {
  const plain = text.replace(/[\p{C}\p{Zl}\p{Zp}\s]+/gu, ' ').trim()
  const letters = [...plain]
  return letters.length > max ? `${letters.slice(0, max - 1).join('')}…` : plain
}

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Escapes a text for HTML, between tags and in quoted attributes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => entities[letter] ?? '')
}

/** Parses a URL that a page links to. It must be `http` or `https`, and must not have a user name or password, which would disguise the host. */
export function linkOf(text: string | undefined): string | undefined {
  if (text === undefined || !URL.canParse(text)) return undefined
  const { protocol, username, password, href } = new URL(text)
  return /^https?:$/.test(protocol) && username === '' && password === '' ? href : undefined
}
