// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title USDC's overloads of EIP-3009 that take signatures of any length (ERC-1271)
/// @dev In a separate interface, because Solidity can't name the selector of an overloaded function.
interface IERC3009Bytes {
    /// @notice Moves `value` of `from` to `to`, as `from` signed it.
    /// @param from The payer.
    /// @param to The recipient.
    /// @param value The amount, in base units.
    /// @param validAfter The Unix time after which the authorization is valid.
    /// @param validBefore The Unix time before which the authorization is valid.
    /// @param nonce Unique for the payer.
    /// @param signature 65 bytes of ECDSA, or any bytes that the payer's contract accepts.
    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external;

    /// @notice As `transferWithAuthorization`, but only the recipient may call it.
    /// @param from The payer.
    /// @param to The recipient, and the caller.
    /// @param value The amount, in base units.
    /// @param validAfter The Unix time after which the authorization is valid.
    /// @param validBefore The Unix time before which the authorization is valid.
    /// @param nonce Unique for the payer.
    /// @param signature 65 bytes of ECDSA, or any bytes that the payer's contract accepts.
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external;
}
