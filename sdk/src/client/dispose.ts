/// <reference lib="esnext.disposable" preserve="true" />

/** Can be closed at the end of a block by `await using`. The reference above provides the type if the user's TypeScript configuration lacks it. */
export type Closable = AsyncDisposable

/**
 * Returns the method that `await using` calls at the end of its block, in runtimes that support it. Safari and older versions of React Native have no
 * `Symbol.asyncDispose`. Code for those runtimes needs a polyfill or calls `close()` itself.
 */
export function disposable(close: () => Promise<void>): Closable {
  const { asyncDispose } = Symbol as Partial<SymbolConstructor>
  return (asyncDispose ? { [asyncDispose]: close } : {}) as Closable
}
