// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Makes and sweeps splitters
/// @notice Ownerless; it holds nothing. `split` packs the terms in which the splitters of one platform differ:
/// `provider << 96 | providerShare (48 bits) << 48 | platformShare (48 bits)`.
interface ISplitterFactory {
    /// @notice A splitter could not be swept. Its money waits there, and it can be swept again.
    /// @param token The token that was to be paid out.
    /// @param splitter The splitter.
    /// @param reason What the sweep reverted with, at most its first 132 bytes.
    event SweepFailed(address indexed token, address indexed splitter, bytes reason);

    /// @notice The code that every splitter delegates to.
    function IMPLEMENTATION() external view returns (address);

    /// @notice The address of a splitter, whether it is deployed yet or not.
    /// @param split The packed terms.
    /// @param platform Recipient of the platform's share.
    function splitterOf(uint256 split, address platform) external view returns (address);

    /// @notice Deploys a splitter unless it exists.
    /// @param split The packed terms.
    /// @param platform Recipient of the platform's share.
    /// @return splitter Its address, as `splitterOf` gives it.
    function deploy(uint256 split, address platform) external returns (address splitter);

    /// @notice Sweeps splitters of one platform, and deploys those that aren't deployed yet but hold something.
    /// One that fails stops no other. One that holds nothing is passed over: somebody else swept it first.
    /// @param token The ERC-20 to pay out.
    /// @param platform Recipient of the platform's shares.
    /// @param splits The packed terms of each splitter.
    function sweep(address token, address platform, uint256[] calldata splits) external;
}
