// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Deploys and sweeps splitters
/// @notice It has no owner and holds no money. `split` packs the terms in which the splitters of one platform differ:
/// `provider << 96 | providerShare (48 bits) << 48 | platformShare (48 bits)`.
interface ISplitterFactory {
    /// @notice A splitter could not be swept. The money stays in it, and anyone can sweep it again.
    /// @param token The token that was to be paid out.
    /// @param splitter The splitter.
    /// @param reason The sweep's revert data, at most its first 132 bytes.
    event SweepFailed(address indexed token, address indexed splitter, bytes reason);

    /// @notice The code that every splitter delegates to.
    function IMPLEMENTATION() external view returns (address);

    /// @notice Returns the address of a splitter, even if it isn't deployed yet.
    /// @param split The packed terms.
    /// @param platform Recipient of the platform's share.
    function splitterOf(uint256 split, address platform) external view returns (address);

    /// @notice Deploys a splitter unless it exists.
    /// @param split The packed terms.
    /// @param platform Recipient of the platform's share.
    /// @return splitter Its address, as `splitterOf` returns it.
    function deploy(uint256 split, address platform) external returns (address splitter);

    /// @notice Sweeps splitters of one platform, and deploys those that hold something but aren't deployed yet. A
    /// failed sweep doesn't stop the others. A splitter that holds nothing (someone else swept it first) is skipped.
    /// @param token The ERC-20 to pay out.
    /// @param platform Recipient of the platform's shares.
    /// @param splits The packed terms of each splitter.
    function sweep(address token, address platform, uint256[] calldata splits) external;
}
